# SPDX-License-Identifier: Apache-2.0
# What `cmake --install` puts down: the library, its public headers, the command, oneDNN beside it, and the package
# files for find_package(cairn).
include(CMakePackageConfigHelpers)
install(TARGETS cairn EXPORT cairn-targets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(EXPORT cairn-targets NAMESPACE cairn:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/.deps/onednn/ DESTINATION ${CMAKE_INSTALL_LIBDIR}/cairn/onednn)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cairn-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/cairn-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/cairn-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/cairn-config.cmake ${CMAKE_CURRENT_BINARY_DIR}/cairn-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
