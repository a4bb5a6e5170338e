# Tests that are not built with sanitizers; a part of CMakeLists.txt.

# Kiln as others get it: installed, and used by a project outside.
if(KILN_INSTALL)
  add_test(NAME install COMMAND bash ${CMAKE_CURRENT_SOURCE_DIR}/install/check.sh
    ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  set_tests_properties(install PROPERTIES LABELS install)
endif()

# Random programs: interpreter against the host tier and the emulator.
file(GLOB sources CONFIGURE_DEPENDS differential/*.cpp)
list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/differential/main.cpp)
add_library(kiln_differential_objects OBJECT ${sources})
target_link_libraries(kiln_differential_objects PUBLIC kiln_runtime kiln_random_programs CLI11::CLI11)
add_executable(kiln_differential differential/main.cpp)
target_link_libraries(kiln_differential PRIVATE kiln_differential_objects)
kiln_test(random_programs LINK kiln_random_programs)  # their generator, reducer and coverage
target_link_libraries(kiln_test_random_programs PRIVATE kiln_differential_objects)
file(GLOB cases CONFIGURE_DEPENDS differential/corpus/*.tile)  # that once failed
add_test(NAME differential COMMAND kiln_differential --device host,emulator,emulator-latest
  --programs 1500 ${cases})
set_tests_properties(differential PROPERTIES LABELS "differential;emulator" TIMEOUT 900
  RUN_SERIAL TRUE)
add_subdirectory(faults)  # does it catch faults in the compiler?

# What the tests run on the host, as PTX in the emulator; the kernels, among them all shipped
# configurations, in both modes of asynchronous copies.
add_test(NAME emulated_codegen COMMAND kiln_test_codegen ~[nvptx]~[jit]~[abi]~[wgmma]~[.])
add_test(NAME emulated_codegen_latest COMMAND kiln_test_codegen [pipelined],[control])
add_test(NAME emulated_kernels COMMAND kiln_test_kernels [attention],[registry])
add_test(NAME emulated_kernels_latest COMMAND kiln_test_kernels [attention],[registry])
add_test(NAME emulated_examples COMMAND kiln_test_examples)
add_test(NAME emulated_examples_latest COMMAND kiln_test_examples)
set_tests_properties(emulated_codegen emulated_codegen_latest emulated_kernels
  emulated_kernels_latest emulated_examples emulated_examples_latest PROPERTIES
  LABELS emulator ENVIRONMENT KILN_TEST_DEVICE=emulator)
set_property(TEST emulated_codegen_latest emulated_kernels_latest emulated_examples_latest
  APPEND PROPERTY ENVIRONMENT KILN_EMULATOR_ASYNC=latest)

# What runs kernels, on a GPU: the tests of the code generators and of the library, random programs,
# and the command itself, so that one file is all that a machine with a GPU needs (tools/bundle.sh).
set(gpu_sources gpu/main.cpp gpu/large_test.cpp gpu/repeat_test.cpp conformance/run_on_gpu.cpp
  gpu/race.cpp gpu/race_attention.cpp gpu/race_gemm.cpp
  ${PROJECT_SOURCE_DIR}/tools/gpu/launch_cost.cpp)
add_executable(kiln_gpu_tests ${gpu_sources})
target_link_libraries(kiln_gpu_tests PRIVATE kiln_codegen_tests kiln_kernels_tests kiln_examples_tests
  kiln_differential_objects kiln_cli_objects kiln_conformance)
add_test(NAME gpu COMMAND kiln_gpu_tests)
add_executable(kiln_bundle EXCLUDE_FROM_ALL ${gpu_sources})
target_link_libraries(kiln_bundle PRIVATE kiln_codegen_tests kiln_kernels_tests kiln_examples_tests
  kiln_differential_objects kiln_cli_objects kiln_conformance)
target_link_options(kiln_bundle PRIVATE -no-pie -static-libstdc++ -static-libgcc
  LINKER:--gc-sections,--as-needed,--icf=all,--strip-all)
set_target_properties(kiln_bundle PROPERTIES KILN_STATIC ON)
set_tests_properties(gpu PROPERTIES LABELS gpu SKIP_RETURN_CODE 77 TIMEOUT 900)

# Kiln in another program's process (gpu/beside_torch.py, gpu/*_beside_peers.py): the two
# libraries in one folder.
add_library(kiln_beside_torch SHARED EXCLUDE_FROM_ALL gpu/beside_torch.cpp
  gpu/decode_beside_peers.cpp gpu/xattention_beside_peers.cpp)
target_include_directories(kiln_beside_torch PRIVATE ${PROJECT_SOURCE_DIR})
target_link_libraries(kiln_beside_torch PRIVATE kiln)
set_target_properties(kiln_beside_torch PROPERTIES BUILD_RPATH_USE_ORIGIN ON
  LIBRARY_OUTPUT_DIRECTORY $<TARGET_FILE_DIR:kiln>)

# Speed as ratios within one run; by itself, so that it has the machine.
file(GLOB sources CONFIGURE_DEPENDS performance/*.cpp)
add_executable(kiln_ratios ${sources})
target_link_libraries(kiln_ratios PRIVATE kiln_kernels)
add_test(NAME ratios COMMAND kiln_ratios)
set_tests_properties(ratios PROPERTIES LABELS performance RUN_SERIAL TRUE TIMEOUT 600)
