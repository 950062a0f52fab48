// Compiled with the instruction set of its name (kernels/CMakeLists.txt).
#define OUTRIDER_ISA portable
#include "kernels/cpu/isa_table.inl.hpp"
