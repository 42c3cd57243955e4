# Uses ccache where it is installed, so that a second clone compiles in seconds. GCC's precompiled headers need
# -fpch-preprocess and the named sloppiness; the base folder makes clones share.
option(TEMPO_CCACHE "Use ccache where it is installed" ON)
find_program(TEMPO_CCACHE_PROGRAM ccache)
if(TEMPO_CCACHE AND TEMPO_CCACHE_PROGRAM AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${CMAKE_COMMAND}" -E env CCACHE_SLOPPINESS=pch_defines,time_macros
      "CCACHE_BASEDIR=${PROJECT_SOURCE_DIR}" "${TEMPO_CCACHE_PROGRAM}")
  set(CMAKE_CUDA_COMPILER_LAUNCHER "${CMAKE_CXX_COMPILER_LAUNCHER}")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  message(STATUS "ccache: ${TEMPO_CCACHE_PROGRAM}")
endif()
