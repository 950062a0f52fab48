// Compiled with the instruction set of its name (CMakeLists.txt here).
#define OUTRIDER_ISA portable
#include "kernels/cpu/isa_table.inl.hpp"
