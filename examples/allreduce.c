/* An all-reduce of float32 by MPI, timed: the slowest rank's seconds, once for each repetition.

   mpicc examples/allreduce.c -o allreduce
   sudo python3 run_topo.py exec --mpi --scale 1 --link-rate 50Mbit -- mpirun ./allreduce BYTES [REPETITIONS] */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, ranks;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    int count = argc > 1 ? atoi(argv[1]) / 4 : 1 << 18, repetitions = argc > 2 ? atoi(argv[2]) : 1;
    float *mine = malloc(4L * count), *sum = malloc(4L * count);
    for (int i = 0; i < count; i++) mine[i] = rank;
    /* The first makes the connections and is not timed. */
    for (int i = 0; i <= repetitions; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        double began = MPI_Wtime(), worst;
        MPI_Allreduce(mine, sum, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        double took = MPI_Wtime() - began;
        MPI_Reduce(&took, &worst, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        for (int k = 0; k < count; k++)
            if (sum[k] != ranks * (ranks - 1) / 2) MPI_Abort(MPI_COMM_WORLD, 9);
        if (rank == 0 && i > 0) printf("%d bytes, %d ranks: %.6f s\n", 4 * count, ranks, worst);
    }
    MPI_Finalize();
    return 0;
}
