# Finds LibTorch and defines the target tempo::torch.
#
# Where it looks, first hit wins:
#   1. -DTEMPO_LIBTORCH=DIR (or the environment variable): an own LibTorch, DIR/{include,lib}.
#   2. the Python environment: TEMPO_PYTHON, or the one that scripts/bootstrap.sh made for this list of packages.
# find_package(Torch) is not used: its configuration insists on finding a whole CUDA tool kit, changes global flags and
# includes fmt's headers first. We link the libraries and say what we include.
set(TEMPO_LIBTORCH "$ENV{TEMPO_LIBTORCH}" CACHE PATH "An own LibTorch (a folder with include/ and lib/)")
set(TEMPO_PYTHON "$ENV{TEMPO_PYTHON}" CACHE FILEPATH "Python interpreter whose torch is used")

if(NOT TEMPO_PYTHON)
  file(SHA256 "${PROJECT_SOURCE_DIR}/scripts/requirements.txt" requirements_hash)
  string(SUBSTRING "${requirements_hash}" 0 12 requirements_hash)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/scripts/requirements.txt")
  if(DEFINED ENV{XDG_CACHE_HOME} AND NOT "$ENV{XDG_CACHE_HOME}" STREQUAL "")
    set(tempo_cache "$ENV{XDG_CACHE_HOME}/tempo")
  else()
    set(tempo_cache "$ENV{HOME}/.cache/tempo")
  endif()
  set(tempo_python "${tempo_cache}/${requirements_hash}/bin/python")
else()
  set(tempo_python "${TEMPO_PYTHON}")
endif()

set(tempo_site_packages "")
if(EXISTS "${tempo_python}")
  execute_process(
    COMMAND "${tempo_python}" -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    OUTPUT_VARIABLE torch_root OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  if(torch_root)
    get_filename_component(tempo_site_packages "${torch_root}" DIRECTORY)
  endif()
endif()
if(TEMPO_LIBTORCH)
  set(torch_root "${TEMPO_LIBTORCH}")
endif()
if(NOT torch_root OR NOT EXISTS "${torch_root}/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch was not found (looked for ${tempo_python}). Run scripts/bootstrap.sh first, "
                      "or name one with -DTEMPO_LIBTORCH=DIR.")
endif()

# LibTorch's include folder holds its own fmt, which must not come before the one that spdlog was built with.
find_path(FMT_INCLUDE_DIR fmt/core.h PATHS /usr/include NO_DEFAULT_PATH REQUIRED)
file(MAKE_DIRECTORY "${PROJECT_BINARY_DIR}/fmt_first")
file(CREATE_LINK "${FMT_INCLUDE_DIR}/fmt" "${PROJECT_BINARY_DIR}/fmt_first/fmt" SYMBOLIC)

add_library(tempo_torch INTERFACE)
add_library(tempo::torch ALIAS tempo_torch)
target_include_directories(tempo_torch SYSTEM BEFORE INTERFACE "${PROJECT_BINARY_DIR}/fmt_first")
target_include_directories(tempo_torch SYSTEM INTERFACE "${torch_root}/include" "${torch_root}/include/torch/csrc/api/include")
set(torch_libraries torch torch_cpu c10)
if(EXISTS "${torch_root}/lib/libtorch_cuda.so")
  list(APPEND torch_libraries torch_cuda c10_cuda)
endif()
# --no-as-needed: libtorch_cuda registers its kernels when loaded; no symbol of ours asks for it.
# libstdc++ comes first: libtorch.so exports a std::filesystem of its own, whose remove_all calls a null pointer here (seen with
# 2.11.0), and the first library that has a symbol wins.
target_link_options(tempo_torch INTERFACE "-Wl,--no-as-needed" "-Wl,-lstdc++" "-Wl,-rpath,${torch_root}/lib")
foreach(library IN LISTS torch_libraries)
  target_link_libraries(tempo_torch INTERFACE "${torch_root}/lib/lib${library}.so")
endforeach()
# at::parallel_for is inlined into our files and silently serial without OpenMP. The run-time library is LibTorch's own
# where it carries one, so that one process has one pool of threads.
target_compile_options(tempo_torch INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fopenmp>)
if(EXISTS "${torch_root}/lib/libgomp.so.1")
  target_link_libraries(tempo_torch INTERFACE "${torch_root}/lib/libgomp.so.1")
else()
  target_link_options(tempo_torch INTERFACE -fopenmp)
endif()

file(STRINGS "${torch_root}/include/torch/headeronly/version.h" version_lines REGEX "define TORCH_VERSION_(MAJOR|MINOR|PATCH) ")
string(REGEX REPLACE "[^0-9;]" "" version_parts "${version_lines}")
string(REPLACE ";" "." TEMPO_TORCH_VERSION "${version_parts}")
message(STATUS "LibTorch ${TEMPO_TORCH_VERSION}: ${torch_root}")
