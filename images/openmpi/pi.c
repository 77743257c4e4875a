/*
 * Pi over MPI: every rank sums its share of the midpoint rule for
 *
 *     pi = integral from 0 to 1 of 4 / (1 + x^2) dx
 *
 * and rank 0 adds the shares up. Each rank also says where it runs, so that a
 * log shows over which hosts the work was spread.
 *
 *     pi [INTERVALS] [SECONDS]
 *
 * SECONDS makes every rank stay that long before it ends (to look at a running
 * job, or to take a node away from it).
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	long intervals = 20000000;
	unsigned seconds = 0;
	int rank, ranks, length;
	char host[MPI_MAX_PROCESSOR_NAME];

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	MPI_Get_processor_name(host, &length);

	if (argc > 1)
		intervals = strtol(argv[1], NULL, 10);
	if (argc > 2)
		seconds = (unsigned)strtoul(argv[2], NULL, 10);
	if (intervals < 1) {
		if (rank == 0)
			fprintf(stderr, "usage: pi [INTERVALS] [SECONDS], INTERVALS at least 1\n");
		MPI_Abort(MPI_COMM_WORLD, 2);
	}

	printf("rank %d of %d on %s\n", rank, ranks, host);
	fflush(stdout);

	double width = 1.0 / (double)intervals, share = 0.0, pi = 0.0;
	for (long i = rank; i < intervals; i += ranks) {
		double x = ((double)i + 0.5) * width;
		share += 4.0 / (1.0 + x * x);
	}
	share *= width;

	if (seconds > 0)
		sleep(seconds);

	MPI_Reduce(&share, &pi, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
	if (rank == 0) {
		printf("pi is approximately %.12f\n", pi);
		fflush(stdout);
	}
	MPI_Finalize();
	return 0;
}
