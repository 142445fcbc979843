# The CPU kernels: one file per instruction set, each with exactly the features its name says and -mtune=generic.
# Never -march=native: the engine picks a level at run time by the machine's feature bits, and gcc's tuning for Zen 2
# and 3 turns pinned loads back into memory operands (a fifth of the speed).

target_compile_definitions(heed_inside INTERFACE HEED_X86=${HEED_X86})

set(isa_baseline)
set(isa_avx2 -mavx2 -mfma -mf16c -mbmi2)
set(isa_avx512 ${isa_avx2} -mavx512f -mavx512bw -mavx512dq -mavx512vl -mprefer-vector-width=512)
set(isa_avx512bf16 ${isa_avx512} -mavx512bf16)
set(isa_amx ${isa_avx512bf16} -mamx-tile -mamx-bf16)

set(isa_levels baseline)
if(HEED_X86)
  list(APPEND isa_levels avx2 avx512 avx512bf16 amx)
endif()

# Optimised in every build type: unoptimised vector code is too slow to test with. Instrumented no further than to -O1: at -O2
# gcc takes 40 s for one level.
if(HEED_INSTRUMENTED)
  set(isa_optimise -O1)
else()
  set(isa_optimise -O3)
endif()

foreach(level IN LISTS isa_levels)
  heed_sources(file cpu/isa/kernels_${level}.cpp)
  if(NOT file)
    message(STATUS "heed: there is no cpu/isa/kernels_${level}.cpp; that level is left out")
    continue()
  endif()
  target_sources(heed_objects PRIVATE ${file})
  set_source_files_properties(${file} PROPERTIES
    SKIP_PRECOMPILE_HEADERS ON
    COMPILE_OPTIONS "${isa_${level}};-mtune=generic;${isa_optimise};-ffp-contract=fast;-fno-math-errno")
endforeach()
