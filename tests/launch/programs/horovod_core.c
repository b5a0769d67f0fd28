/* Stands in for the library of a Horovod without MPI, as horovod/common/operations.cc (0.28.1) makes it: the state is a
   variable of an unnamed namespace, and horovod_init sets its first byte.  With MPI it has a class MPIContext, too. */

static struct {
    volatile char initialize_flag;
    char others[64];
} horovod_global __asm__(STATE);

int horovod_init(void) {
    horovod_global.initialize_flag = 1;
    return 1;
}

#ifdef WITH_MPI
void mpi_context_enable(void) __asm__("_ZN7horovod6common10MPIContext6EnableERKSt6vectorIiSaIiEE");
void mpi_context_enable(void) {}
#endif
