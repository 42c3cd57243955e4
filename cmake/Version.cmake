# Two uses of one file. Included by CMakeLists.txt it defines the target tempo_version, which brings the header
# tempo_version.h; run with `cmake -P` at every build it writes that header, and touches it only when it changes.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(version_header "${PROJECT_BINARY_DIR}/generated/tempo_version.h")
  set(cuda_architectures "")
  if(tempo_cuda)
    string(REPLACE ";" " " cuda_architectures "${TEMPO_CUDA_ARCHITECTURES}")
  endif()
  find_program(TEMPO_GIT git)
  add_custom_target(tempo_version_header
    COMMAND "${CMAKE_COMMAND}" "-Dsource_dir=${PROJECT_SOURCE_DIR}" "-Dheader=${version_header}" "-Dgit=${TEMPO_GIT}"
            "-Dversion=${PROJECT_VERSION}" "-Dtorch_version=${TEMPO_TORCH_VERSION}"
            "-Dcuda_version=${TEMPO_CUDA_VERSION}" "-Dcuda_architectures=${cuda_architectures}"
            -P "${CMAKE_CURRENT_LIST_FILE}"
    BYPRODUCTS "${version_header}"
    COMMENT "Looking at the git revision" VERBATIM)
  add_library(tempo_version INTERFACE)
  target_include_directories(tempo_version INTERFACE "${PROJECT_BINARY_DIR}/generated")
  add_dependencies(tempo_version tempo_version_header)
  return()
endif()

set(git_revision "")
if(git AND EXISTS "${source_dir}/.git")
  execute_process(
    COMMAND "${git}" --no-optional-locks -C "${source_dir}" describe --always --dirty --abbrev=12 "--exclude=*"
    OUTPUT_VARIABLE git_revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT git_revision)
  set(git_revision unknown)
endif()
configure_file("${CMAKE_CURRENT_LIST_DIR}/version.h.in" "${header}" @ONLY)
