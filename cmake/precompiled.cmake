# Headers of the standard library and of packages, parsed once per target instead of once per file:
# a third of what a build without optimisation takes. Our own headers are never among them. The
# debug preset compiles without, and each file alone: who forgets an #include is told there.
option(OUTRIDER_PRECOMPILED "Precompile package headers (quick builds of the tests)" OFF)

set(OUTRIDER_STANDARD_HEADERS <algorithm> <chrono> <filesystem> <fstream> <functional> <map> <memory>
  <mutex> <optional> <span> <sstream> <string> <thread> <unordered_map> <variant> <vector>)

# outrider_precompile(<target> <headers>...)
function(outrider_precompile target)
  if(NOT OUTRIDER_PRECOMPILED)
    return()
  endif()
  if(CMAKE_CXX_COMPILER_ID MATCHES Clang)  # without the time of day the compiler cache knows it again
    target_compile_options(${target} PRIVATE "SHELL:-Xclang -fno-pch-timestamp")
  endif()
  target_precompile_headers(${target} PRIVATE ${OUTRIDER_STANDARD_HEADERS} ${ARGN})
  cmake_language(EVAL CODE "cmake_language(DEFER CALL outrider_skip_precompiled ${target})")
endfunction()

# Files with options of their own (kernels, -O3) cannot read what was made with their target's.
function(outrider_skip_precompiled target)
  get_target_property(sources ${target} SOURCES)
  list(FILTER sources EXCLUDE REGEX "^\\$<")
  foreach(source ${sources})
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    if(options)
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endif()
  endforeach()
endfunction()
