# Third-party packages, all from Debian. Each is linked only where cmake/folder.cmake's callers name
# it, and tools/check/check_layers.py holds their headers to the same folders.
find_package(Threads REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(prometheus-cpp REQUIRED)

# Debian's PCRE2, xxHash, utf8proc and CAF carry no CMake configuration.
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(PCRE2::pcre2 UNKNOWN IMPORTED)
set_target_properties(PCRE2::pcre2 PROPERTIES IMPORTED_LOCATION ${PCRE2_LIBRARY})

find_library(XXHASH_LIBRARY xxhash REQUIRED)
add_library(xxHash::xxhash UNKNOWN IMPORTED)
set_target_properties(xxHash::xxhash PROPERTIES IMPORTED_LOCATION ${XXHASH_LIBRARY})

find_library(UTF8PROC_LIBRARY utf8proc REQUIRED)
add_library(utf8proc::utf8proc UNKNOWN IMPORTED)
set_target_properties(utf8proc::utf8proc PROPERTIES IMPORTED_LOCATION ${UTF8PROC_LIBRARY})

if(NOT PROJECT_IS_TOP_LEVEL)
  return()  # what follows is for the programs and the tests
endif()
find_package(CapnProto REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(GTest REQUIRED)
find_package(benchmark REQUIRED)
find_package(CLI11 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(RocksDB REQUIRED)

find_path(CAF_INCLUDE_DIR caf/all.hpp REQUIRED)
foreach(part core io)
  find_library(CAF_${part}_LIBRARY caf_${part} REQUIRED)
  add_library(CAF::${part} UNKNOWN IMPORTED)
  set_target_properties(CAF::${part} PROPERTIES
    IMPORTED_LOCATION ${CAF_${part}_LIBRARY}
    INTERFACE_INCLUDE_DIRECTORIES ${CAF_INCLUDE_DIR})
endforeach()
target_link_libraries(CAF::core INTERFACE Threads::Threads)
target_link_libraries(CAF::io INTERFACE CAF::core)
