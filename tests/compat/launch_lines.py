"""Launch lines that other people wrote, with their sources, and what their authors meant by them.

Each is a line of a public tutorial, benchmark suite, container recipe or test, unchanged except for three things: a
line broken with backslashes is one line, a shell variable has the value that `given` says, and words of the program
that do not matter are left out.  Programs are never run here; placements are computed for this host, called here, with
8 cores in one socket, and for hosts of that kind.
"""

# ruff: noqa: E501 - the lines of others are as long as they are

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

NOTHING: Mapping[str, str] = MappingProxyType({})


class Line(NamedTuple):
    """One launch line."""

    source: str  # repository:path, or an address
    words: str  # as a shell reads them
    meant: str  # "host ranks; host ranks"
    files: Mapping[str, str] = NOTHING  # name -> text
    given: Mapping[str, str] = NOTHING  # variables of the shell
    env: tuple[str, ...] = ()  # names that ranks are given, and perhaps "NAME=value"
    mca: tuple[str, ...] = ()  # "KEY=value" that ranks' libraries are given
    logs: str = ""  # where the output of the ranks is kept
    dialect: str = "mpirun"


TWO = {"hosts": "server1 slots=8\nserver2 slots=8\n"}
FOUR = "server1 0-3; server2 4-7; server3 8-11; server4 12-15"
MINDSPORE = "mindspore-ai/docs:docs/sample_code/"
AZURE = "Azure/azurehpc:apps/"
AWS = "aws-samples/awsome-distributed-training:"
PHORONIX = "phoronix-test-suite/test-profiles:pts/"

LINES = (
    # --- MindSpore
    Line(
        MINDSPORE + "distributed_data_parallel/run.sh",
        "mpirun -n 8 --output-filename log_output --merge-stderr-to-stdout python distributed_data_parallel.py",
        "here 0-7",
        logs="log_output/1/rank.0/stdout",
    ),
    Line(
        MINDSPORE + "startup_method/run_mpirun_1.sh",
        "mpirun -n 8 -H 192.168.0.1:8,192.168.0.2:8 --output-filename log_output --merge-stderr-to-stdout python net.py",
        "192.168.0.1 0-7",
        logs="log_output/1/rank.0/stdout",
    ),
    Line(
        MINDSPORE + "startup_method/run_mpirun_2.sh",
        "mpirun -n 16 --hostfile $HOSTFILE --output-filename log_output --merge-stderr-to-stdout python net.py",
        "server1 0-7; server2 8-15",
        TWO, {"HOSTFILE": "hosts"}, logs="log_output/1/rank.00/stdout",
    ),
    Line(
        MINDSPORE + "shard_function_parallel/run_mpirun_shard_function_example.sh",
        "mpirun -n 8 --output-filename log_output --allow-run-as-root python shard_function_example.py",
        "here 0-7",
        logs="log_output/1/rank.0/stdout",
    ),
    Line(
        "mindspore-ai/docs:docs/mindspore/source_en/faq/distributed_parallel.md",
        "mpirun -n 4 --mca btl tcp --mca btl_tcp_if_include eth0 ./run.sh",
        "here 0-3",
        mca=("btl=tcp", "btl_tcp_if_include=eth0"),
    ),
    Line(
        "mindspore-ai/docs:docs/mindspore/source_en/faq/distributed_parallel.md",
        "mpirun -n 4 --mca btl tcp --mca btl_tcp_if_include 192.168.1.0/24 ./run.sh",
        "here 0-3",
        mca=("btl_tcp_if_include=192.168.1.0/24",),
    ),
    Line(
        "mindspore-ai/docs:docs/graphlearning/docs/source_en/single_host_distributed_Graphsage.md",
        "mpirun --allow-run-as-root -n ${CUDA_NUM} python3 ./distributed_trainval_reddit.py --data-path data --epochs 5",
        "here 0-1",
        given={"CUDA_NUM": "2"},
    ),
    Line(
        "mindspore-ai/docs:docs/lite/docs/source_en/mindir/runtime_distributed_python.md",
        "mpirun -n $RANK_SIZE python3 ./main.py --model_path=/your/path/to/Matmul.mindir",
        "here 0-1",
        given={"RANK_SIZE": "2"},
    ),
    Line(
        "mindspore-ai/docs:tutorials/source_en/debug/sdc.md",
        "mpirun -n 4 --output-filename log_output --merge-stderr-to-stdout python silent_check.py",
        "here 0-3",
        logs="log_output/1/rank.0/stdout",
    ),
    # --- Horovod
    Line(
        "horovod/horovod:docs/mpi.rst",
        "mpirun -np 4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH "
        "-mca pml ob1 -mca btl ^openib python train.py",
        "here 0-3",
        env=("NCCL_DEBUG=INFO", "LD_LIBRARY_PATH", "PATH"), mca=("pml=ob1", "btl=^openib"),
    ),
    Line(
        "horovod/horovod:docs/mpi.rst",
        "mpirun -np 16 -H server1:4,server2:4,server3:4,server4:4 -bind-to none -map-by slot "
        "-x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib python train.py",
        FOUR,
        env=("NCCL_DEBUG=INFO",), mca=("pml=ob1",),
    ),
    Line(
        "horovod/horovod:docs/mpi.rst",
        "mpirun -np 16 -H server1:4,server2:4,server3:4,server4:4 -bind-to none -map-by slot "
        "-mca plm_rsh_args '-p 12345' -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH -mca pml ob1 -mca btl ^openib "
        "python train.py",
        FOUR,
        mca=("btl=^openib",),
    ),
    Line(
        "horovod/horovod:docs/mpi.rst",
        "mpirun -np 16 -H server1:4,server2:4,server3:4,server4:4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO "
        "-x LD_LIBRARY_PATH -x HOROVOD_MPI_THREADS_DISABLE=1 -x PATH -mca pml ob1 python train.py",
        FOUR,
        env=("HOROVOD_MPI_THREADS_DISABLE=1",),
    ),
    Line(
        "horovod/horovod:docs/mpi.rst",
        "mpirun -x HOROVOD_FUSION_THRESHOLD=33554432 -x HOROVOD_CYCLE_TIME=3.5 -np 2 python train.py",
        "here 0-1",
        env=("HOROVOD_FUSION_THRESHOLD=33554432", "HOROVOD_CYCLE_TIME=3.5"),
    ),
    Line(
        "horovod/horovod:Dockerfile.test.cpu",
        "mpirun -allow-run-as-root -np 2 -H localhost:2 -bind-to none -map-by slot -mca mpi_abort_print_stack 1 "
        "-tag-output python train.py",
        "here 0-1",
        mca=("mpi_abort_print_stack=1",),
    ),
    Line(
        "horovod/horovod:Dockerfile.test.cpu",
        "mpirun -np 2 -hosts localhost python train.py",
        "here 0-1",
        dialect="hydra",
    ),
    Line("horovod/horovod:Dockerfile.test.gpu", "mpirun -np 2 -l python train.py", "here 0-1", dialect="hydra"),
    Line(
        "horovod/horovod:docker/helm/README.md",
        "mpirun -np 3 --hostfile generated/hostfile --mca orte_keep_fqdn_hostnames t --allow-run-as-root --display-map "
        "--tag-output --timestamp-output sh -c 'python /examples/tensorflow_mnist.py'",
        "mnist-0.horovod.default 0; mnist-1.horovod.default 1; mnist-2.horovod.default 2",
        {"generated/hostfile": "".join(f"mnist-{at}.horovod.default slots=1\n" for at in range(3))},
    ),
    Line(
        "horovod/horovod:docs/oneccl.rst",
        "mpirun -n 4 -ppn 2 -hostfile hosts python ./run_example.py",
        "server1 0-1; server2 2-3",
        {"hosts": "server1\nserver2\n"}, dialect="hydra",
    ),
    Line(
        "horovod/horovod:examples/adasum/adasum_bench.ipynb",
        "mpirun -n 32 --oversubscribe python adasum_small_model.py --x_max=1 --op=Adasum",
        "here 0-31",
    ),
    Line(
        "fengrussell/tensor2tensor-hvd:README.md",
        "mpirun -np 4 -H localhost:4 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH "
        "-mca pml ob1 -mca btl ^openib -mca btl_tcp_if_include eth0 hvd/t2t-hvd-trainer --problems=image_mnist",
        "here 0-3",
        mca=("btl_tcp_if_include=eth0",),
    ),
    Line(
        "https://pastebin.com/HCeRuZS7",
        "mpirun -np 2 -H 192.168.31.7:1,192.168.31.5:1 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -mca pml ob1 "
        "-mca btl ^openib -x NCCL_SOCKET_IFNAME=^lo,docker0,wlo1 -mca btl_tcp_if_exclude lo,docker0,wlo1 run.sh",
        "192.168.31.7 0; 192.168.31.5 1",
        env=("NCCL_SOCKET_IFNAME=^lo,docker0,wlo1",), mca=("btl_tcp_if_exclude=lo,docker0,wlo1",),
    ),
    Line(
        "https://github.com/Tencent/PocketFlow/issues/301",
        "mpirun -np ${nb_gpus} -H localhost:${nb_gpus} -bind-to none -map-by slot -x NCCL_DEBUG=INFO "
        "-x NCCL_SOCKET_IFNAME=eno1 -x NCCL_IB_DISABLE=1 -x LD_LIBRARY_PATH --mca btl_tcp_if_include eth1 python main.py",
        "here 0-3",
        given={"nb_gpus": "4"}, env=("NCCL_IB_DISABLE=1",),
    ),
    # --- nccl-tests
    Line(
        "NVIDIA/nccl-tests:README.md",
        "mpirun -np 64 -N 8 ./build/all_reduce_perf -b 8 -e 8G -f 2 -g 1",
        "; ".join(f"node{at} {8 * at}-{8 * at + 7}" for at in range(8)),
        {"default": "".join(f"node{at} slots=8\n" for at in range(8))},
    ),
    Line(
        "http://docs.cornelis.com/en/cn5000-performance-tuning/gpu-benchmarking",
        "mpirun -n 8 --map-by ppr:4:node -mca btl self,vader -mca mtl ofi -mca mtl ofi -x FI_PROVIDER=opx "
        "-x NCCL_IB_HCA=hfi1_0:2 -x NCCL_SOCKET_IFNAME=eth0 /opt/nccl/all_reduce_perf -b 4 -e 1073741824 -f 2 -g 1",
        "server1 0-3; server2 4-7",
        {"default": TWO["hosts"]}, env=("NCCL_IB_HCA=hfi1_0:2",), mca=("mtl=ofi",),
    ),
    Line(
        AWS + "micro-benchmarks/nccl-tests/slurm/nccl-tests-ami.sbatch",
        "mpirun -n 16 -N 8 -x FI_PROVIDER=efa -x FI_EFA_FORK_SAFE=1 -x LD_LIBRARY_PATH=/opt/amazon/efa/lib:/usr/lib "
        "-x NCCL_DEBUG=INFO -x NCCL_SOCKET_IFNAME=^docker,lo,veth -x NCCL_BUFFSIZE=8388608 --mca pml ^ucx "
        "--mca btl tcp,self --mca btl_tcp_if_exclude lo,docker0,veth_def_agent --bind-to none "
        "${ALL_REDUCE_BINARY} -b 8 -e 16G -f 2 -g 1 -c 1 -n 100",
        "server1 0-7; server2 8-15",
        {"default": TWO["hosts"]}, {"ALL_REDUCE_BINARY": "all_reduce_perf"},
        env=("NCCL_SOCKET_IFNAME=^docker,lo,veth", "LD_LIBRARY_PATH=/opt/amazon/efa/lib:/usr/lib"), mca=("pml=^ucx",),
    ),
    Line(
        AWS + "micro-benchmarks/nccl-tests/slurm/nccl-tests-ami.sbatch",
        "mpirun -N 1 bash -c 'echo $$(hostname) $$(cat /sys/devices/virtual/dmi/id/board_asset_tag | tr -d \" \")'",
        "server1 0; server2 1",
        {"default": TWO["hosts"]},
    ),
    Line(
        AWS + "micro-benchmarks/nccl-tests/kubernetes/nccl-tests.yaml",
        "/opt/amazon/openmpi/bin/mpirun --allow-run-as-root --tag-output -np 16 -N 8 --bind-to none -x PATH "
        "-x LD_LIBRARY_PATH -x FI_PROVIDER=efa -x FI_EFA_FORK_SAFE=1 -x NCCL_DEBUG=INFO --mca pml ^cm,ucx "
        "/opt/nccl-tests/build/all_reduce_perf -b 8 -e 16G",
        "server1 0-7; server2 8-15",
        {"default": TWO["hosts"]}, mca=("pml=^cm,ucx",),
    ),
    Line(
        AWS + "micro-benchmarks/nccl-tests/kubernetes/nccl-tests-gb200.yaml",
        "/opt/amazon/openmpi/bin/mpirun --allow-run-as-root --tag-output -np 8 -npernode 4 --map-by ppr:4:node "
        "--bind-to none -x PATH -x LD_LIBRARY_PATH -x FI_PROVIDER=efa -x NCCL_NVLS_ENABLE=1 all_reduce_perf -b 8",
        "server1 0-3; server2 4-7",
        {"default": "server1 slots=4\nserver2 slots=4\n"},
    ),
    Line(
        AWS + "1.architectures/3.aws-batch/aws-batch-distributed-training-p6.yaml",
        "/opt/amazon/openmpi/bin/mpirun --allow-run-as-root --mca btl tcp,self -np ${NCCL_TOTAL_PROCS} "
        "--hostfile tmp/hostfile --bind-to none -x PATH -x LD_LIBRARY_PATH -x NCCL_SOCKET_IFNAME -x NCCL_NET_PLUGIN=ofi "
        "-x FI_PROVIDER=efa -x NCCL_DEBUG ${NCCL_TEST_CMD}",
        "10.0.0.1 0-7; 10.0.0.2 8-15",
        {"tmp/hostfile": "10.0.0.1 slots=8\n10.0.0.2 slots=8\n"},
        {"NCCL_TOTAL_PROCS": "16", "NCCL_TEST_CMD": "all_reduce_perf -b 8"}, mca=("btl=tcp,self",),
    ),
    # --- Kubernetes
    Line(
        "kubeflow/mpi-operator:examples/v2beta1/horovod/tensorflow-mnist.yaml",
        "mpirun -np 2 --allow-run-as-root -bind-to none -map-by slot -x LD_LIBRARY_PATH -x PATH -mca pml ob1 "
        "-mca btl ^openib python /examples/tensorflow2_mnist.py",
        "mnist-worker-0 0; mnist-worker-1 1",
        {"default": "mnist-worker-0.mnist.default.svc slots=1\nmnist-worker-1.mnist.default.svc slots=1\n"},
    ),
    Line(
        "kubeflow/mpi-operator:examples/v2beta1/tensorflow-benchmarks/tensorflow-benchmarks.yaml",
        "mpirun --allow-run-as-root -np 2 -bind-to none -map-by slot -x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH "
        "-mca pml ob1 -mca btl ^openib python scripts/tf_cnn_benchmarks.py --model=resnet101",
        "here 0-1",
    ),
    Line("kubeflow/mpi-operator:examples/v2beta1/pi/pi.yaml", "mpirun -n 2 /home/mpiuser/pi", "here 0-1"),
    # --- DeepSpeed
    Line(
        "microsoft/DeepSpeed:deepspeed/launcher/multinode_runner.py",
        "mpirun -n 16 -hostfile job/hostfile --mca btl ^openib --mca btl_tcp_if_include eth0 -x UCX_TLS=tcp "
        "-x PYTHONPATH=/code python3 -u train.py --deepspeed",
        "worker-1 0-7; worker-2 8-15",
        {"job/hostfile": "worker-1 slots=8\nworker-2 slots=8\n"},
        env=("UCX_TLS=tcp", "PYTHONPATH=/code"), mca=("btl=^openib", "btl_tcp_if_include=eth0"),
    ),
    Line(
        "microsoft/DeepSpeed:docs/_tutorials/onebit-adam.md",
        "mpirun -np 32 -ppn 4 -hostfile hosts -env MV2_USE_CUDA=1 -env MV2_SUPPORT_DL=1 -env MV2_ENABLE_AFFINITY=0 "
        "-env MV2_SMP_USE_CMA=0 bash run_squad_mpi_onebitadam.sh",
        "; ".join(f"node{at} {4 * at}-{4 * at + 3}" for at in range(8)),
        {"hosts": "".join(f"node{at}\n" for at in range(8))}, env=("MV2_USE_CUDA=1",), dialect="hydra",
    ),
    # --- mpi4py
    Line("mpi4py/mpi4py:demo/README.txt", "mpiexec -n 5 python helloworld.py", "here 0-4"),
    Line("mpi4py/mpi4py:docs/source/develop.rst", "mpiexec -n 5 python -m mpi4py.bench ringtest -l 10 -n 1048576", "here 0-4"),
    Line("mpi4py/mpi4py:.github/workflows/ci-test.yml", "mpiexec -n 2 python test/main.py -v -f -e spawn", "here 0-1"),
    Line("mpi4py/mpi4py:docs/source/mpi4py.futures.rst", "mpiexec -n 3 python -m mpi4py.futures julia.py", "here 0-2"),
    Line("mpi4py/mpi4py:.azure/steps.yml", "mpiexec -n 1 python -m mpi4py --mpi-library", "here 0"),
    # --- PETSc
    Line("petsc/petsc:doc/faq/index.md", "mpiexec -n 4 --map-by socket --bind-to socket --report-bindings ./ex2", "here 0-3"),
    Line("petsc/petsc:doc/manual/performance.md", "mpiexec -n 6 --bind-to core --map-by socket ./stream", "here 0-5"),
    Line("petsc/petsc:doc/manual/performance.md", "mpiexec -n 6 --bind-to core --map-by core ./stream", "here 0-5"),
    Line("petsc/petsc:doc/manual/streams.md", "mpiexec --bind-to numa -n 1 --map-by core ./ex69f", "here 0"),
    Line(
        "petsc/petsc:doc/manual/profiling.md",
        "mpiexec -n 1 nsys profile -t nvtx,cuda -o file_name --stats=true --force-overwrite true ./a.out : -n 3 ./a.out",
        "here 0-3",
    ),
    Line(
        "petsc/petsc:doc/tutorials/handson.md",
        "mpiexec -n 4 ./ex50 -da_grid_x 120 -da_grid_y 120 -pc_type lu -pc_factor_mat_solver_type superlu_dist",
        "here 0-3",
    ),
    # --- OSU, IMB, IOR
    Line(
        "https://gist.github.com/hppritcha/6a3acd0c192fcfd082bd543fc98e6fe6",
        "mpirun -np 2 -N 1 --mca pml ob1 ./osu_latency",
        "server1 0; server2 1",
        {"default": TWO["hosts"]}, mca=("pml=ob1",),
    ),
    Line(
        AZURE + "health_checks/run_ring_osu_bw_hpcx.pbs",
        "mpirun -np 2 --host $src,$dst --map-by node -x LD_LIBRARY_PATH $HPCX_OSU_DIR/osu_bw",
        "ip-0A 0; ip-0B 1",
        given={"src": "ip-0A", "dst": "ip-0B", "HPCX_OSU_DIR": "/opt/osu"},
    ),
    Line(
        AZURE + "health_checks/run_ring_osu_bw.sh",
        "mpirun -np 2 -hosts $src,$dst -env MV2_SHOW_CPU_BINDING 2 osu_bw",
        "ip-0A 0; ip-0B 1",
        given={"src": "ip-0A", "dst": "ip-0B"}, env=("MV2_SHOW_CPU_BINDING=2",), dialect="hydra",
    ),
    Line(
        AZURE + "health_checks/allreduce.sh",
        "mpirun --host ${target}:${ppn} -np ${ppn} --mca pml ucx --mca btl ^vader,tcp,openib,uct "
        "IMB-MPI1 Allreduce -iter 10000 -npmin 120 -msglog 3:4 -time 1000000",
        "ip-0A 0-119",
        given={"target": "ip-0A", "ppn": "120"}, mca=("btl=^vader,tcp,openib,uct",),
    ),
    Line(
        AZURE + "imb-mpi/ringpingpong.lsf",
        "mpirun -np 2 -ppn 1 -hosts $src,$dst IMB-MPI1 PingPong",
        "ip-0A 0; ip-0B 1",
        given={"src": "ip-0A", "dst": "ip-0B"}, dialect="hydra",
    ),
    Line(
        AZURE + "io500/io500.pbs",
        "mpirun -n $NPROCS --hostfile $PBS_NODEFILE /opt/io500 config.ini",
        "node1 0-1; node2 2-3",
        {"nodefile": "node1\nnode1\nnode2\nnode2\n"}, {"NPROCS": "4", "PBS_NODEFILE": "nodefile"},
    ),
    Line(
        AZURE + "io500/io500_impi_beeond.pbs",
        "mpirun -np $CORES -ppn $PPN -f $PBS_NODEFILE io500 config.ini",
        "node1 0-1; node2 2-3",
        {"nodefile": "node1\nnode2\n"}, {"CORES": "4", "PPN": "2", "PBS_NODEFILE": "nodefile"}, dialect="hydra",
    ),
    Line(
        AZURE + "darshan/readme.md",
        "mpirun -x LD_PRELOAD -bind-to hwthread -np 4 myapplication",
        "here 0-3",
        env=("LD_PRELOAD",),
    ),
    # --- applications
    Line(
        AZURE + "nwchem/run_nwchem.pbs",
        "mpirun -x LD_LIBRARY_PATH -np $NPROCS --hostfile $PBS_NODEFILE --map-by core --report-bindings nwchem ./c240.nw",
        "node1 0-1; node2 2-3",
        {"nodefile": "node1\nnode1\nnode2\nnode2\n"}, {"NPROCS": "4", "PBS_NODEFILE": "nodefile"},
    ),
    Line(
        AZURE + "opm/flow_norne.sh",
        "mpirun -np $CORES -hostfile $PBS_NODEFILE --map-by numa --bind-to core --report-bindings -mca pml ucx "
        "-mca btl self,vader,openib -x UCX_NET_DEVICES=mlx5_0:1 -x UCX_IB_PKEY=$PKEY flow NORNE_ATW2013.DATA",
        "node1 0-1; node2 2-3",
        {"nodefile": "node1\nnode1\nnode2\nnode2\n"}, {"CORES": "4", "PBS_NODEFILE": "nodefile", "PKEY": "0x8001"},
        env=("UCX_IB_PKEY=0x8001",), mca=("btl=self,vader,openib",),
    ),
    Line(
        AZURE + "lammps/run_lammps_intelmpi.sh",
        "mpirun -np $CORES -hostfile $MPI_HOSTFILE -ppn $PPN lmp -in in.lj",
        "node1 0-1; node2 2-3",
        {"nodefile": "node1\nnode2\n"}, {"CORES": "4", "PPN": "2", "MPI_HOSTFILE": "nodefile"}, dialect="hydra",
    ),
    Line(
        "aws-samples/aws-graviton-md-example:codes/LAMMPS/3b-lammps-gcc.sh",
        "mpirun -np 128 --map-by ppr:32:node lmp_aarch64 -sf omp -var x 32 -in in.lj",
        "; ".join(f"node{at} {32 * at}-{32 * at + 31}" for at in range(4)),
        {"default": "".join(f"node{at} slots=64\n" for at in range(4))},
    ),
    Line("gromacs/gromacs:docs/user-guide/mdrun-features.rst", "mpirun -np 32 gmx_mpi mdrun -multidir a b c d", "here 0-31"),
    Line(
        "gromacs/gromacs:docs/user-guide/mdrun-performance.rst",
        "mpirun -np 8 gmx_mpi mdrun -nb gpu -pme gpu -npme 2 -bonded gpu -update gpu",
        "here 0-7",
    ),
    Line(PHORONIX + "hpl-1.0.0/install.sh", "mpirun --allow-run-as-root -np $N ./xhpl", "here 0-7", given={"N": "8"}),
    Line(PHORONIX + "hpcc-1.2.1/install.sh", "mpirun -np $N --hostfile hosts ./hpcc", "server1 0-7", TWO, {"N": "8"}),
    Line(PHORONIX + "hpcg-1.3.0/install.sh", "mpirun --allow-run-as-root -np $N ./xhpcg", "here 0-7", given={"N": "8"}),
    Line(
        PHORONIX + "intel-mpi-1.0.1/install.sh",
        "mpirun --allow-run-as-root -np $N IMB-P2P PingPong -iter 1000000",
        "here 0-7",
        given={"N": "8"},
    ),
    Line(
        PHORONIX + "opm-git-1.3.51/install.sh",
        "mpirun --allow-run-as-root -np $NPROC --map-by numa --report-bindings opm/build/bin/flow NORNE.DATA",
        "here 0-3",
        given={"NPROC": "4"},
    ),
    Line(
        "open-mpi/ompi:.github/workflows/hdf5-tests.yaml",
        "mpirun --mca io ompio -np 4 ./hdf5/testpar/t_filters_parallel",
        "here 0-3",
        mca=("io=ompio",),
    ),
    Line("open-mpi/ompi:AGENTS.md", "mpirun --np 2 ./ring_c", "here 0-1"),
)  # fmt: skip
