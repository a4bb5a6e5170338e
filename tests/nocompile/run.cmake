# Programs that must not compile. Each file's first line says which sentence the compiler must print,
# or that the file compiles (so that an error of another kind does not pass).
#   cmake -DCOMPILER=g++ -DINCLUDE=<repository> -P run.cmake
foreach(variable COMPILER INCLUDE)
  if(NOT DEFINED ${variable})
    message(FATAL_ERROR "give -D${variable}=…")
  endif()
endforeach()

file(GLOB programs ${CMAKE_CURRENT_LIST_DIR}/*.cpp)
set(failures 0)
foreach(program ${programs})
  file(READ ${program} text)
  string(REGEX MATCH "^[^\n]*" first "${text}")
  execute_process(
    COMMAND ${COMPILER} -std=c++20 -fsyntax-only -I${INCLUDE} ${program}
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  cmake_path(GET program FILENAME file)
  if(first STREQUAL "// compiles")
    if(NOT status EQUAL 0)
      math(EXPR failures "${failures} + 1")
      message("${file}: must compile, but ${COMPILER} says\n${output}")
    endif()
    continue()
  endif()
  string(REPLACE "// expect: " "" sentence "${first}")
  # Compilers break long strings in two; a sentence is compared without quotes and line ends.
  string(REGEX REPLACE "[\"\n]" "" output "${output}")
  string(FIND "${output}" "${sentence}" found)
  if(status EQUAL 0 OR found EQUAL -1)
    math(EXPR failures "${failures} + 1")
    message("${file}: expected an error with the sentence\n  ${sentence}\ngot status ${status} and\n${output}")
  endif()
endforeach()
if(failures GREATER 0)
  message(FATAL_ERROR "${failures} programs behave otherwise")
endif()
list(LENGTH programs count)
message("${count} programs as expected with ${COMPILER}")
