/* Two ranks send a message to and fro: prints the seconds of one way, for the bytes and the turns of the two words. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static double turns(int rank, char *buffer, int bytes, int count)
{
    double begin = MPI_Wtime();
    for (int turn = 0; turn < count; turn++) {
        if (rank == 0)
            MPI_Send(buffer, bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        MPI_Recv(buffer, bytes, MPI_CHAR, 1 - rank, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (rank == 1)
            MPI_Send(buffer, bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    return (MPI_Wtime() - begin) / (2.0 * count);
}

int main(int argc, char **argv)
{
    int rank, bytes = atoi(argv[1]), count = atoi(argv[2]);
    char *buffer = calloc(1, bytes);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    turns(rank, buffer, bytes, count / 10 + 1);
    double best = 1e9;
    for (int series = 0; series < 5; series++) {
        double found = turns(rank, buffer, bytes, count);
        best = found < best ? found : best;
    }
    if (rank == 0)
        printf("seconds %.9f\n", best);
    MPI_Finalize();
    return 0;
}
