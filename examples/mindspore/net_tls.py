"""Trains as net.py does, with TLS between the workers and the scheduler, as in MindSpore's own tutorial.

    sh make_certificates.sh certificates
    mslaunch -n 4 --scheduler-runs ranks python net_tls.py

TLS_DIR names the directory that make_certificates.sh made, if it is another. The passwords of the two keys come from
MS_TLS_SERVER_PASSWORD and MS_TLS_CLIENT_PASSWORD, or from the files server.password and client.password in there; so
they are on no command line. The scheduler has to know all this as well, and so it runs this file too; in it, init()
does not return.
"""

import os
import sys
from pathlib import Path

import mindspore as ms

DIRECTORY = Path(os.environ.get("TLS_DIR") or Path(__file__).with_name("certificates")).absolute()


def password(side):
    """Of the key of one side of a connection."""
    given = os.environ.get(f"MS_TLS_{side.upper()}_PASSWORD")
    file = DIRECTORY / f"{side}.password"
    if not given and not file.exists():
        sys.exit(f"no password for {DIRECTORY / side}.p12: set MS_TLS_{side.upper()}_PASSWORD, or write {file}")
    return given or file.read_text().strip()


if not (DIRECTORY / "config.json").exists():
    sys.exit(f"there is no {DIRECTORY / 'config.json'}: make it with make_certificates.sh, or set TLS_DIR")
ms.set_ps_context(
    config_file_path=str(DIRECTORY / "config.json"),
    enable_ssl=True,
    server_password=password("server"),
    client_password=password("client"),
)

import net  # noqa: F401  training begins at its import: MindSpore reads the context in init()
