get_filename_component(OUTRIDER_ROOT ${CMAKE_CURRENT_LIST_DIR} DIRECTORY)

# Everything that ctest runs, by label.
if(PROJECT_IS_TOP_LEVEL)
  add_custom_target(unit)
  add_custom_target(races)
  add_custom_target(end_to_end)
endif()

# outrider_test(<target> LABELS <labels>... [ARGS <arguments>...] [NAME <name>])
#
# Registers a program with ctest. Labels: unit (built with ASan + UBSan in `make test`), races (with
# TSan, see outrider_races), e2e (release build); the targets `unit`, `races` and `end_to_end` build
# what their label runs. Inside another project there are none.
function(outrider_test target)
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  cmake_parse_arguments(ARG "" "NAME" "LABELS;ARGS" ${ARGN})
  if(NOT ARG_NAME)
    set(ARG_NAME ${target})
  endif()
  add_test(NAME ${ARG_NAME} COMMAND ${target} ${ARG_ARGS} WORKING_DIRECTORY ${OUTRIDER_ROOT})
  set_tests_properties(${ARG_NAME} PROPERTIES LABELS "${ARG_LABELS}")
  if("unit" IN_LIST ARG_LABELS)
    add_dependencies(unit ${target})
  endif()
  if("races" IN_LIST ARG_LABELS)
    add_dependencies(races ${target})
  endif()
  if("e2e" IN_LIST ARG_LABELS)
    add_dependencies(end_to_end ${target})
  endif()
endfunction()

# outrider_folder(<folder> [DEPS <targets>...] [PRIVATE_DEPS <targets>...]
#                 [EXTRA_SOURCES <files>...] [SUBFOLDERS <folders>...] [PRECOMPILED <headers>...])
#
# One static library per folder, from every *.cpp in it, and one test program <folder>_tests from
# every *.test.cpp beside the sources. DEPS names the folders (outrider::x) and packages it uses,
# PRECOMPILED the packages' headers that most of its files read.
function(outrider_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;PRIVATE_DEPS;EXTRA_SOURCES;SUBFOLDERS;PRECOMPILED" ${ARGN})
  set(patterns ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(sub ${ARG_SUBFOLDERS})
    list(APPEND patterns ${CMAKE_CURRENT_SOURCE_DIR}/${sub}/*.cpp)
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${patterns})
  set(tests ${sources})
  list(FILTER sources EXCLUDE REGEX "\\.test\\.cpp$")
  list(FILTER tests INCLUDE REGEX "\\.test\\.cpp$")
  list(APPEND sources ${ARG_EXTRA_SOURCES})

  add_library(outrider_${name} STATIC ${sources})
  add_library(outrider::${name} ALIAS outrider_${name})
  target_include_directories(outrider_${name} PUBLIC ${OUTRIDER_ROOT} ${PROJECT_BINARY_DIR})
  target_compile_features(outrider_${name} PUBLIC cxx_std_20)
  target_link_libraries(outrider_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
  outrider_precompile(outrider_${name} ${ARG_PRECOMPILED})

  if(tests AND PROJECT_IS_TOP_LEVEL)
    add_executable(${name}_tests ${tests})
    target_link_libraries(${name}_tests PRIVATE outrider_${name} ${ARG_PRIVATE_DEPS}
                          GTest::gmock GTest::gtest_main)
    outrider_precompile(${name}_tests <gmock/gmock.h> <gtest/gtest.h> ${ARG_PRECOMPILED})
    outrider_test(${name}_tests LABELS unit)
  endif()
endfunction()

# outrider_emulated(<target> <pattern>)
#
# Of a program's tests those that run an emulated device, by a pattern of GoogleTest: in the optimised
# tree, since they take minutes with sanitizers (and look for races themselves), not with the others.
function(outrider_emulated target pattern)
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  set_tests_properties(${target} PROPERTIES ENVIRONMENT "GTEST_FILTER=-${pattern}")
  outrider_test(${target} NAME ${target}_emulated LABELS e2e ARGS "--gtest_filter=${pattern}")
  set_tests_properties(${target}_emulated PROPERTIES FAIL_REGULAR_EXPRESSION "Running 0 tests")
endfunction()

# outrider_races(<folder> SOURCES <files>... DEPS <targets>...)
#
# The tests of a folder's classes with threads, run under TSan: a program of these files alone, since
# CAF and KJ are not clean under TSan and their users take long to compile.
function(outrider_races name)
  if(NOT PROJECT_IS_TOP_LEVEL)
    return()
  endif()
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_executable(${name}_races EXCLUDE_FROM_ALL ${ARG_SOURCES})
  target_link_libraries(${name}_races PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest_main)
  outrider_precompile(${name}_races <gmock/gmock.h> <gtest/gtest.h>)
  outrider_test(${name}_races LABELS races)
endfunction()
