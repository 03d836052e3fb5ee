# plumbline_layer(<name> DEPENDS <targets...> [EXCEPT <patterns of files...>])
#
# Declares the level in src/plumbline/<name>: a library of its *.cc files, and a test program of its
# *_test.cc files. A file named *_isa.cc is compiled once per instruction set, in the namespace
# PLUMBLINE_ISA (isa_avx2, isa_avx512, isa_avx512_bf16); such a file includes only headers that are
# plain enough to be compiled for each of them (no standard containers, no fmt).

set(PLUMBLINE_WARNINGS -Wall -Wextra -Werror -Wno-ignored-attributes -Wno-psabi
    -Wno-missing-field-initializers -Wno-maybe-uninitialized -Wno-restrict)
# The fuzz build is clang's, whose warnings are others; the code is kept free of g++'s.
if(PLUMBLINE_FUZZ)
  set(PLUMBLINE_WARNINGS -w)
endif()
# numerics contract, section 1: no contraction, no fast-math. x86-64-v3 (AVX2 + FMA) is the baseline.
set(PLUMBLINE_CODEGEN -ffp-contract=off -fno-fast-math -fno-math-errno -march=x86-64-v3)
if(PLUMBLINE_SANITIZE)
  # -O1 and line tables alone: the unrolled kernels compile five times faster than with -O2 -g.
  list(APPEND PLUMBLINE_CODEGEN -fsanitize=${PLUMBLINE_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all
       -O1 -g1)
  add_link_options(-fsanitize=${PLUMBLINE_SANITIZE})
endif()
set(PLUMBLINE_ISA_FLAGS_avx2 -march=x86-64-v3)
set(PLUMBLINE_ISA_FLAGS_avx512 -march=x86-64-v4 -mprefer-vector-width=512)
set(PLUMBLINE_ISA_FLAGS_avx512_bf16 -march=x86-64-v4 -mprefer-vector-width=512 -mavx512bf16 -mavx512vnni)
if(PLUMBLINE_EMULATE_AVX512)
  set(PLUMBLINE_EMULATION -O0 -w -include ${PROJECT_SOURCE_DIR}/tests/emulation/avx512.h)
  set(PLUMBLINE_ISA_FLAGS_avx512 ${PLUMBLINE_EMULATION} -DPLUMBLINE_EMULATED_BF16=0)
  set(PLUMBLINE_ISA_FLAGS_avx512_bf16 ${PLUMBLINE_EMULATION} -DPLUMBLINE_EMULATED_BF16=1)
endif()

function(plumbline_target_options target)
  target_compile_options(${target} PRIVATE ${PLUMBLINE_WARNINGS} ${PLUMBLINE_CODEGEN})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
endfunction()

function(plumbline_layer name)
  cmake_parse_arguments(ARG "" "" "DEPENDS;EXCEPT" ${ARGN})
  set(dir ${PROJECT_SOURCE_DIR}/src/plumbline/${name})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${dir}/*.cc)
  foreach(pattern ${ARG_EXCEPT})
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  set(tests ${sources})
  set(isa_sources ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(FILTER isa_sources INCLUDE REGEX "_isa\\.cc$")
  list(FILTER sources EXCLUDE REGEX "(_test|_isa|_bench|/main)\\.cc$")

  if(sources)
    add_library(plumbline_${name} STATIC ${sources})
    target_link_libraries(plumbline_${name} PUBLIC ${ARG_DEPENDS})
    plumbline_target_options(plumbline_${name})
  else()
    add_library(plumbline_${name} INTERFACE)
    target_link_libraries(plumbline_${name} INTERFACE ${ARG_DEPENDS})
    target_include_directories(plumbline_${name} INTERFACE ${PROJECT_SOURCE_DIR}/src)
  endif()
  if(isa_sources)
    foreach(isa avx2 avx512 avx512_bf16)
      set(object plumbline_${name}_${isa})
      add_library(${object} OBJECT ${isa_sources})
      # GCC 12's own AVX-512 headers start from undefined registers and then warn about them.
      target_compile_options(${object} PRIVATE ${PLUMBLINE_WARNINGS} -Wno-maybe-uninitialized
                             ${PLUMBLINE_CODEGEN} ${PLUMBLINE_ISA_FLAGS_${isa}})
      target_compile_definitions(${object} PRIVATE PLUMBLINE_ISA=isa_${isa})
      target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR}/src)
      target_sources(plumbline_${name} PRIVATE $<TARGET_OBJECTS:${object}>)
    endforeach()
  endif()
  if(tests AND PLUMBLINE_TESTS)
    plumbline_test(plumbline_${name}_test LABELS ${name} SOURCES ${tests} DEPENDS plumbline_${name})
  endif()
endfunction()

# plumbline_test(<target> LABELS <labels...> SOURCES <files...> DEPENDS <targets...>): one GoogleTest
# program, each of its tests a CTest test. Golden files are found through PLUMBLINE_SOURCE_DIR. Suites
# whose name begins with Slow get the label <labels>-slow, which `ctest -L slow` and `-LE slow` match.
function(plumbline_test target)
  cmake_parse_arguments(ARG "" "" "LABELS;SOURCES;DEPENDS" ${ARGN})
  add_executable(${target} ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_DEPENDS} GTest::gtest_main)
  plumbline_target_options(${target})
  target_precompile_headers(${target} PRIVATE <gtest/gtest.h> <string> <vector>)
  target_compile_definitions(${target} PRIVATE PLUMBLINE_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "-Slow*:*/Slow*"
                       PROPERTIES LABELS "${ARG_LABELS}")
  gtest_discover_tests(${target} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 TEST_FILTER "Slow*:*/Slow*"
                       TEST_LIST ${target}_SLOW_TESTS PROPERTIES LABELS "${ARG_LABELS}-slow")
endfunction()
