# What `cmake --install` lays out: library, headers, command, heedConfig.cmake, heed.pc, bash completion.
include(CMakePackageConfigHelpers)

install(TARGETS heed EXPORT heedTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/heed DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")

set(heed_cmake_dir ${CMAKE_INSTALL_LIBDIR}/cmake/heed)
install(EXPORT heedTargets NAMESPACE heed:: DESTINATION ${heed_cmake_dir})
configure_package_config_file(cmake/heedConfig.cmake.in heedConfig.cmake INSTALL_DESTINATION ${heed_cmake_dir})
# Before 1.0 a new minor version may change the interface.
write_basic_package_version_file(heedConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/heedConfig.cmake ${PROJECT_BINARY_DIR}/heedConfigVersion.cmake
        DESTINATION ${heed_cmake_dir})

# heed.pc finds its prefix from where it lies, so the installed tree can be moved; not so where a folder is absolute.
set(heed_pc_dir ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  set(heed_pc_prefix "${CMAKE_INSTALL_PREFIX}")
else()
  file(RELATIVE_PATH heed_pc_to_prefix /${heed_pc_dir} /)
  string(REGEX REPLACE "/$" "" heed_pc_to_prefix "${heed_pc_to_prefix}")
  set(heed_pc_prefix "\${pcfiledir}/${heed_pc_to_prefix}")
endif()
foreach(folder IN ITEMS LIBDIR INCLUDEDIR)
  string(TOLOWER heed_pc_${folder} variable)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${folder}}")
    set(${variable} "${CMAKE_INSTALL_${folder}}")
  else()
    set(${variable} "\${prefix}/${CMAKE_INSTALL_${folder}}")
  endif()
endforeach()
configure_file(cmake/heed.pc.in heed.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/heed.pc DESTINATION ${heed_pc_dir})

if(TARGET heed_command)
  install(TARGETS heed_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  install(FILES tools/heed/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME heed
          OPTIONAL)
endif()
