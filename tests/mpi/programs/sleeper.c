/* The rank of argv[1] sleeps, while all others wait for it in a barrier. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

static void meet(void) { MPI_Barrier(MPI_COMM_WORLD); }

int main(int argc, char **argv)
{
    int rank;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == atoi(argv[1]))
        sleep(1000);
    meet();
    MPI_Finalize();
    return 0;
}
