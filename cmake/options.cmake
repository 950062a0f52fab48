# Language, warnings, sanitizers and the compiler cache: everything that holds for each target.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

option(OUTRIDER_WERROR "Warnings are errors" ${PROJECT_IS_TOP_LEVEL})
option(OUTRIDER_FUZZ "Build the fuzz targets for libFuzzer (needs clang)" OFF)
set(OUTRIDER_SANITIZE "" CACHE STRING "Sanitizers, comma separated: address,undefined or thread")

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness that ccache's manual asks for where headers are precompiled.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE})
endif()

# -ffp-contract=off: every float operation is the one that is written (docs/ARCHITECTURE.md, exactness).
set(OUTRIDER_COMPILE_OPTIONS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -Wno-missing-field-initializers -ffp-contract=off -fno-omit-frame-pointer)
if(CMAKE_UNITY_BUILD AND CMAKE_COMPILER_IS_GNUCXX)
  # In merged files GCC takes a name without linkage for one of a header.
  list(APPEND OUTRIDER_COMPILE_OPTIONS -Wno-subobject-linkage)
endif()
if(OUTRIDER_WERROR)
  list(APPEND OUTRIDER_COMPILE_OPTIONS -Werror)
endif()
add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:${OUTRIDER_COMPILE_OPTIONS}>")

if(OUTRIDER_SANITIZE)
  # CAF's headers bind references to null in functor actors without arguments: a false positive.
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=${OUTRIDER_SANITIZE}>)
  add_link_options(-fsanitize=${OUTRIDER_SANITIZE})
  if(OUTRIDER_SANITIZE MATCHES "undefined")
    add_compile_options("$<$<COMPILE_LANGUAGE:C,CXX>:-fno-sanitize=null;-fno-sanitize-recover=undefined>")
  endif()
endif()
if(OUTRIDER_FUZZ)
  add_compile_options($<$<COMPILE_LANGUAGE:C,CXX>:-fsanitize=fuzzer-no-link>)
endif()
