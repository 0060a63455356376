# SPDX-License-Identifier: Apache-2.0
# Every library that Cairn uses, each found once. All are Debian 12 packages (what is added here goes
# into packages.txt too) but oneDNN, which comes from a wheel that cmake/get_onednn.sh unpacks into
# .deps/onednn (see docs/decisions/onednn-wheel.md).
list(PREPEND CMAKE_PREFIX_PATH ${PROJECT_SOURCE_DIR}/.deps/onednn)
find_package(Threads REQUIRED)
if(CAIRN_STD_THREADS)
  add_library(OpenMP::OpenMP_CXX INTERFACE IMPORTED)  # nothing: base/parallel.cpp starts the threads
else()
  find_package(OpenMP REQUIRED COMPONENTS CXX)
endif()
find_package(dnnl 3.2 CONFIG REQUIRED)
find_package(fmt REQUIRED)
find_package(hwy 1.0.3 CONFIG REQUIRED)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_package(Boost 1.74 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(Protobuf REQUIRED)
find_package(ONNX CONFIG REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(CAIRO REQUIRED IMPORTED_TARGET cairo cairo-ft freetype2)
pkg_check_modules(EXIF REQUIRED IMPORTED_TARGET libexif)
if(CAIRN_TESTS)
  find_package(GTest REQUIRED)
endif()
