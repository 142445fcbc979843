# bash completion for heed:  source completion.bash, or install it as
# /usr/share/bash-completion/completions/heed.
# Keys are asked from the command itself, so that they are always the ones it has.

_heed_values() {
  case $1 in
    mask) echo 'n t b t: b: xt: xb: g:' ;;
    prec) echo 'fp32 fp16 bf16 fp8 fp8bf16 fp8fp32' ;;
    o_prec) echo 'fp32 fp16 bf16' ;;
    bias) echo 'n e e:1 e:2 a a:1' ;;
    bias_prec) echo 'fp32 same' ;;
    bool_mask) echo 'n e e:1 e:2' ;;
    init) echo 'n ui ni uf nf tf 3' ;;
    dist) echo 'normal sparse_int offset hot_key const_v equal one_nan' ;;
    engine) echo 'auto cpu cuda' ;;
    op) echo 'fwd bwd' ;;
    isa) echo 'baseline avx2 avx512 avx512bf16 amx' ;;
    layout) echo 'bhsd bshd qkvpacked kvpacked' ;;
    vlayout) echo 'r c' ;;
    math) echo 'fast accurate' ;;
    timer) echo 'gpu cpu' ;;
    v) echo '0 1 full' ;;
    qscale) echo 'n pt bs' ;;
    profile) echo 'flash inference all' ;;
    causal) echo '0 1 0,1' ;;
    verify) echo '0 1' ;;
    mode | iperm | operm | lse | kname | randval | drop_prefs | init_sink | deterministic) echo '0 1' ;;
    kernel) "$2" kernels --names 2>/dev/null ;;
  esac
}

_heed() {
  local heed=$1 word=${COMP_LINE:0:COMP_POINT} sub=${COMP_WORDS[1]} key
  word=${word##*[[:space:]]}
  COMPREPLY=()

  if ((COMP_CWORD == 1)); then
    mapfile -t COMPREPLY < <(compgen -W 'fwd bwd bench sweep fuzz replay demo explain kernels mask cache info help' -- "$word")
    return
  fi

  if [[ $word == -*=* ]]; then
    key=${word%%=*}
    key=${key##*-}
    case $key in
      jsonfile | json | md | record | dir) mapfile -t COMPREPLY < <(compgen -f -- "${word#*=}") ;;
      *) mapfile -t COMPREPLY < <(compgen -W "$(_heed_values "$key" "$heed")" -- "${word#*=}") ;;
    esac
    # bash takes '=' and ':' for the ends of words: it wants only what stands behind the last of them.
    local cut=${word#*=}
    if [[ $cut == *:* ]]; then COMPREPLY=("${COMPREPLY[@]#"${cut%:*}:"}"); fi
    return
  fi

  case $word in
    -*)
      mapfile -t COMPREPLY < <(compgen -W "$("$heed" "$sub" --help 2>/dev/null | sed -n 's/^  \(-[-a-z_]*=\{0,1\}\).*/\1/p')" -- "$word")
      if [[ ${COMPREPLY[0]-} == *= ]]; then compopt -o nospace 2>/dev/null; fi
      ;;
    *)
      case $sub in
        bench)
          mapfile -t COMPREPLY < <(compgen -W 'fa2 models decode cpu features host seqlen batch heads hdim' -- "$word") ;;
        mask) mapfile -t COMPREPLY < <(compgen -W "$(_heed_values mask)" -- "$word") ;;
        cache)
          if ((COMP_CWORD == 2)); then
            mapfile -t COMPREPLY < <(compgen -W 'ls clear prewarm export import' -- "$word")
          else
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
          fi
          ;;
        replay) mapfile -t COMPREPLY < <(compgen -f -- "$word") ;;
      esac
      ;;
  esac
}

complete -F _heed heed
