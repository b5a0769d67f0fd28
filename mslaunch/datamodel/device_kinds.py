"""The kinds of accelerators, and the variable by which the library of each limits a process to some of them.

Sources: CUDA C++ Programming Guide, "CUDA Environment Variables"; CANN, "ASCEND_RT_VISIBLE_DEVICES"; ROCm, "GPU
isolation techniques"; oneAPI Level Zero specification, "Environment Variables".
"""

from __future__ import annotations

from mslaunch.faststd import NamedTuple


class DeviceKind(NamedTuple):
    """Accelerators that one library drives."""

    name: str
    title: str  # in messages
    variable: str  # names of devices with commas between, in the order in which the process is to count them


NVIDIA = DeviceKind("nvidia", "NVIDIA", "CUDA_VISIBLE_DEVICES")
ASCEND = DeviceKind("ascend", "Ascend", "ASCEND_RT_VISIBLE_DEVICES")
AMD = DeviceKind("amd", "AMD", "ROCR_VISIBLE_DEVICES")
INTEL = DeviceKind("intel", "Intel", "ZE_AFFINITY_MASK")
KINDS = (NVIDIA, ASCEND, AMD, INTEL)
