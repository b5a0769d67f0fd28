"""Open MPI's transports are excluded where their hardware is missing, unless somebody has configured them."""

from __future__ import annotations

from pathlib import Path

import pytest

from mslaunch.agent.mpi.pmix.mca_exclusions import idle_transports

SYSTEM = "etc/openmpi/openmpi-mca-params.conf"
PSM = "usr/lib/openmpi/lib/openmpi3/mca_mtl_psm.so"


class Host:
    """A tree that looks like a host with Open MPI 4.1, Debian's, and 5 beside it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.environ = {"HOME": str(root / "home")}
        self.four = self.write("usr/lib/libmpi.so.40")
        self.five = self.write("opt/five/lib/libmpi.so.40")
        self.write(PSM)
        self.write("usr/lib/openmpi/lib/openmpi3/mca_mtl_psm2.so")
        self.write("opt/five/lib/libopen-pal.so.80")

    def write(self, name: str, text: str = "") -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return str(path)

    def said(self, libmpi: str | None = None) -> dict[str, str]:
        found = idle_transports(self.four if libmpi is None else libmpi, self.environ, str(self.root))
        return {name[len("OMPI_MCA_") :]: value for name, value in found.items()}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def test_a_transport_without_a_device_is_excluded(host: Host) -> None:
    assert host.said() == {"mtl": "^psm,psm2"}
    assert host.said(host.five) == {"btl": "^ofi"}


def test_a_transport_that_is_not_installed_is_not_named(host: Host) -> None:
    (host.root / PSM).unlink()
    assert host.said() == {"mtl": "^psm2"}


def test_a_library_without_them_is_left_alone(host: Host) -> None:
    assert host.said(host.write("opt/lib/libmpi.so.40")) == {}
    assert host.said("") == {}


@pytest.mark.parametrize(
    ("device", "left"),
    [("dev/hfi1_0", "^psm"), ("dev/ipath0", "^psm2"), ("sys/class/infiniband/qib0", "^psm2"),
     ("sys/class/infiniband/hfi1_0", "^psm"), ("sys/class/infiniband/mlx5_0", "^psm,psm2")],
)  # fmt: skip
def test_a_device_keeps_its_transport(host: Host, device: str, left: str) -> None:
    host.write(device)
    assert host.said() == {"mtl": left}


@pytest.mark.parametrize("device", ["sys/class/infiniband/mlx5_0", "sys/class/cxi/cxi0", "dev/hfi1_0", "dev/kgni0"])
def test_any_fast_network_device_keeps_ofi(host: Host, device: str) -> None:
    host.write(device)
    assert host.said(host.five) == {}


def test_exclusions_of_the_administrator_stay(host: Host) -> None:
    host.write(SYSTEM, "# mtl = psm\nmtl = ^cm\n mtl=^ofi # slow\nbtl = ^openib,ofi\n")
    assert host.said() == {"mtl": "^ofi,psm,psm2"}
    assert host.said(host.five) == {"btl": "^ofi"}, "that file is not for this library"
    host.write("opt/five/etc/openmpi-mca-params.conf", "btl = ^openib,ofi\n")
    assert host.said(host.five) == {}, "it is excluded there already"


def test_choices_of_the_administrator_stay(host: Host) -> None:
    host.write(SYSTEM, "mtl = ofi\nbtl = tcp,self\n")
    assert host.said() == {}


def test_the_users_file_overrides_the_systems(host: Host) -> None:
    host.write(SYSTEM, "mtl = ofi\n")
    host.write("home/.openmpi/mca-params.conf", "mtl = ^portals4\n")
    assert host.said() == {"mtl": "^portals4,psm,psm2"}


def test_an_installation_elsewhere_has_its_own_file(host: Host) -> None:
    host.write("opt/five/etc/openmpi-mca-params.conf", "btl=ofi,self\n")
    assert host.said(host.five) == {}


@pytest.mark.parametrize("name", ["OMPI_MCA_mtl", "OMPI_MCA_mca_base_param_files"])
def test_variables_of_the_user_are_not_overridden(host: Host, name: str) -> None:
    host.environ[name] = "x"
    assert host.said() == {}
