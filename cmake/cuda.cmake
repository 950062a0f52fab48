# The CUDA back end: kernels/cuda/gpu with nvcc. The runtime is linked statically and looks for the
# driver when it is first used, so the same binary runs on machines without one.
option(OUTRIDER_CUDA "Build the CUDA back end (needs nvcc 12.8 or later)" OFF)
set(OUTRIDER_CUDA_ARCHITECTURES "80;90a;100" CACHE STRING "Machine code for these; of the last also PTX")
if(NOT OUTRIDER_CUDA)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES OFF)
find_program(CMAKE_CUDA_COMPILER nvcc HINTS /usr/local/cuda/bin)
if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 can
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
find_package(CUDAToolkit REQUIRED)

set(OUTRIDER_CUDA_GENCODE)
list(GET OUTRIDER_CUDA_ARCHITECTURES -1 last)
foreach(arch ${OUTRIDER_CUDA_ARCHITECTURES})
  set(code "sm_${arch}")
  if(arch STREQUAL last)
    set(code "[sm_${arch},compute_${arch}]")
  endif()
  list(APPEND OUTRIDER_CUDA_GENCODE "-gencode=arch=compute_${arch},code=${code}")
endforeach()

set(OUTRIDER_CUDA_WARNINGS -Xcompiler=-Wall,-Wextra,-Wno-missing-field-initializers)
if(OUTRIDER_WERROR)
  list(APPEND OUTRIDER_CUDA_WARNINGS -Werror=all-warnings -Xcompiler=-Werror)
endif()
