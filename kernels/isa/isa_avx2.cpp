// Compiled with the instruction set of its name (CMakeLists.txt here).
#if defined(__x86_64__)
#define OUTRIDER_ISA avx2
#include "kernels/cpu/isa_table.inl.hpp"
#endif
