#!/bin/sh
# Tests of what is released: the programs, their bills of materials and checksums, the manifest for krew, and the image.
# make release-test runs this, and builds what stands in bin/ before. All happens in copies of the repository. The image
# takes buildah and root, and no network but the Go module proxy: its image of Go is made of the tools of this machine.
#   -required  fails where the image cannot be tested
#   -thorough  tests all architectures, and compiles the image without the build cache
set -eu
required='' thorough=''
for argument; do
  case $argument in
  -required | -thorough) eval "${argument#-}=yes" ;;
  *) echo "usage: $0 [-required] [-thorough]" >&2; exit 2 ;;
  esac
done
repository=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 1' HUP INT TERM
umask 022
export LC_ALL=C

version=v1.2.3 epoch=1700000000 # what the programs are stamped with
here=$(go env GOARCH)
archs=$here # to compile for another takes minutes
test -z "$thorough" || archs='amd64 arm64'

fail() { echo "release-test: $*" >&2; exit 1; }

# quietly runs a command, and shows what it printed only if it fails.
quietly() { "$@" >"$work/log" 2>&1 </dev/null || { cat "$work/log" >&2; fail "failed: $*"; }; }

# same fails unless two files are equal: what is first said of them.
same() { cmp -s "$2" "$3" || fail "$1: $2 and $3 differ"; }

# equal fails unless two texts are equal.
equal() { test "$2" = "$3" || fail "$1 is [$2], want [$3]"; }

# check_out copies the repository, without history and what was built, to a folder. Tools that take minutes to build go
# with it, and all times, by which make knows that they are built.
check_out() {
  mkdir -p "$1/bin"
  tar -C "$repository" --exclude=./.git --exclude=./bin --exclude=./dist -cf - . | tar -C "$1" -xpf -
  cp -p "$repository/bin/helm" "$repository/bin/cyclonedx-gomod" "$1/bin"
}

# make_in runs make in such a folder.
make_in() { dir=$1; shift; quietly make -C "$dir" VERSION=$version SOURCE_DATE_EPOCH=$epoch "$@"; }

files() { # all that a release has
  printf '%s\n' SHA256SUMS install.yaml mirror.yaml mirror-controller-1.2.3.tgz
  for arch in $archs; do
    for program in mirror-controller-linux-$arch kubectl-mirror-linux-$arch kubectl-mirror-darwin-$arch \
      kubectl-mirror-windows-$arch.exe; do printf '%s\n' "$program" "$program.cdx.json"; done
    for system in linux darwin windows; do echo "kubectl-mirror-$system-$arch.tar.gz"; done
  done
}

# program fails unless a program is for its system and architecture, needs no library, is compiled as programs are that
# are released, and has a bill of materials of its own that lists the modules that are linked.
program() {
  system=${1#*-*-}; arch=${system#*-}; system=${system%%-*}; arch=${arch%.exe}
  go version -m "$dist/$1" >"$work/info"
  built=$(sed -nE 's/^\tbuild\t(-gcflags|CGO_ENABLED|GOARCH|GOOS)=/\1=/p' "$work/info" | sort | xargs)
  equal "$1: what it is built with" "$built" "-gcflags=all=-dwarf=false CGO_ENABLED=0 GOARCH=$arch GOOS=$system"
  listed=$(sed -nE '/"cdx:gomod:binary:hash:SHA-256"/{n;s/.*"value": "(.*)".*/\1/p;}' "$dist/$1.cdx.json")
  sum=$(sha256sum <"$dist/$1")
  equal "$1.cdx.json: the checksum" "$listed" "${sum%% *}"
  # The program itself and the standard library are no dependencies, and are listed.
  equal "$1.cdx.json: the number of modules" "$(grep -c '"bom-ref"' "$dist/$1.cdx.json")" \
    "$(($(grep -c '^	dep	' "$work/info") + 2))"
}

# krew_installs fails unless krew takes an archive by the manifest, which has its checksum, and installs the program.
krew_installs() {
  target=${1#kubectl-mirror-} ending=''
  target=${target%.tar.gz}
  case $target in windows-*) ending=.exe ;; esac
  rm -rf "$work/krew"
  mkdir "$work/krew"
  quietly env -i HOME="$work/krew" KREW_ROOT="$work/krew" KREW_OS="${target%-*}" KREW_ARCH="${target#*-}" \
    KREW_NO_UPGRADE_CHECK=1 "$repository/bin/krew" install --manifest="$dist/mirror.yaml" --archive="$dist/$1"
  same "what krew installs" \
    "$work/krew/store/mirror/$version/kubectl-mirror$ending" "$dist/kubectl-mirror-$target$ending"
}

echo "release-test: the version of Go in the Dockerfile"
minor=$(sed -nE 's/^go ([0-9]+\.[0-9]+).*/\1/p' "$repository/go.mod")
equal "Dockerfile: the image of Go" "$(sed -n 's/^ARG GO_IMAGE=//p' "$repository/Dockerfile")" "golang:$minor"

echo "release-test: two releases of one commit"
for copy in one quite/another image; do check_out "$work/$copy"; done # at once: somebody may go on with an edit
for copy in one quite/another; do make_in "$work/$copy" release ARCHS="$archs"; done
dist=$work/one/dist
files | sort >"$work/want"
ls "$dist" >"$work/got"
equal "what dist/ lacks (<) and has besides (>)" "$(diff "$work/want" "$work/got" | grep '^[<>]' | xargs)" ''
equal "what differs between two releases" "$(diff "$dist/SHA256SUMS" "$work/quite/another/dist/SHA256SUMS" |
  sed -nE 's/^[<>] [0-9a-f]+ +//p' | sort -u | xargs)" ''
equal "what SHA256SUMS lists" "$(sed -E 's/^[0-9a-f]+ +//' "$dist/SHA256SUMS" | sort | xargs)" \
  "$(grep -v SHA256SUMS "$work/want" | xargs)"
(cd "$dist" && quietly sha256sum --check --strict SHA256SUMS)
for bill in "$dist"/*.cdx.json; do
  bill=${bill##*/}
  program "${bill%.cdx.json}"
done
same "install.yaml" "$dist/install.yaml" "$work/one/deploy/install.yaml"
quietly "$repository/bin/validate-krew-manifest" -skip-install -manifest="$dist/mirror.yaml"
for archive in "$dist"/*.tar.gz; do krew_installs "${archive##*/}"; done

echo "release-test: the programs that tests, demo and benchmarks run are those that are released"
make_in "$work/one" build
for name in mirror-controller kubectl-mirror; do
  said=$("$work/one/bin/$name" --version)
  case $said in "$name $version "*) ;; *) fail "$name --version prints [$said]" ;; esac
  same "bin/ and dist/" "$work/one/bin/$name" "$dist/$name-linux-$here"
done

if ! command -v buildah >/dev/null || test "$(id -u)" != 0; then
  test -z "$required" || fail "the image takes root, and buildah"
  echo "release-test: the image is not tested: that takes root, and buildah"
  exit
fi

# Chroot and plain folders work where this runs in a container itself.
printf '[storage]\ndriver = "vfs"\ngraphroot = "%s"\nrunroot = "%s"\n' "$work/graph" "$work/run" >"$work/storage.conf"
export CONTAINERS_STORAGE_CONF="$work/storage.conf" STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot

# The image that stands in for that of Go has the environment of the go command here, whose files come as volumes.
stand_in=localhost/go-of-this-machine
mkdir -p "$work/go/root/usr" "$work/go/root/etc" "$work/go/root/root"
mkdir -m 1777 "$work/go/root/tmp"
for link in bin lib lib64; do ln -s usr/$link "$work/go/root/$link"; done
{
  printf '%s\n' "FROM scratch" "COPY root /" "ENV HOME=/root GOCACHE=/gocache PATH=$(go env GOROOT)/bin:/usr/bin"
  for name in GOPROXY GOSUMDB GOTOOLCHAIN GOMODCACHE; do echo "ENV $name=\"$(go env $name)\""; done
} >"$work/go/Dockerfile"
quietly buildah build --tag $stand_in "$work/go"

# image builds the image by a target of the Makefile, for an architecture, with a build cache where it compiles programs.
# It leaves what a container begins with, the layers, and a folder with all files.
image() {
  name=localhost/tested:$1 cache=${3-}
  set -- "$1" "$2" BUILDER=buildah IMAGE="$name" ARCH="$2"
  test -z "$cache" || set -- "$@" GO_IMAGE=$stand_in IMAGE_ARGS="--volume /usr:/usr:ro --volume /etc/ssl:/etc/ssl:ro \
    --volume $goroot:$goroot:ro --volume $modules:$modules --volume $cache:/gocache"
  arch=$2 target=$1
  shift 2
  make_in "$work/image" "$target" "$@"
  config=$(inspect '{{with .OCIv1}}{{.OS}}/{{.Architecture}} of {{.Created}}: {{.Config}}{{end}}' |
    sed 's/io.buildah.version:[0-9.]* //') # which buildah adds by itself
  layers=$(inspect '{{.OCIv1.RootFS}}')
  digest=$(inspect '{{.FromImageDigest}}')
  root=$(buildah mount "$(buildah from --arch="$arch" "$name")")
}

inspect() { buildah inspect --type=image --format "$1" "$name"; }

# is_right fails unless the image runs the program, not as root, and has the two programs, which anyone may run and
# nobody but root may change, and no other file. Its PATH is that of all builders. A copy has no revision.
is_right() {
  labels=$(sed -nE 's/.*(org.opencontainers.image.description)="(.+)".*/\1:\2/p' "$repository/Dockerfile")
  equal "the image" "$config" "linux/$arch of 2023-11-14 22:13:20 +0000 UTC: {65532:65532 map[] \
[PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin] [/mirror-controller] [] map[]  map[$labels \
org.opencontainers.image.revision:unknown org.opencontainers.image.title:mirror-controller \
org.opencontainers.image.version:$version]  false}"
  equal "the list of files in the image" "$(find "$root" -mindepth 1 -printf '%P %m %U:%G\n' | sort | xargs)" \
    "kubectl-mirror 755 0:0 mirror-controller 755 0:0"
  for name in mirror-controller kubectl-mirror; do
    same "in the image and outside" "$root/$name" "$work/image/dist/$name-linux-$arch"
  done
}

goroot=$(go env GOROOT) modules=$(go env GOMODCACHE) usual=$(go env GOCACHE) first=$usual
if test -n "$thorough"; then
  first=$work/cache
  mkdir "$first"
fi
echo "release-test: the image around programs that are compiled before"
image image-prebuilt "$here"
is_right
prebuilt="$config $layers"
echo "release-test: the image by its whole Dockerfile"
image image "$here" "$first"
is_right
equal "the image around programs that are compiled before" "$prebuilt" "$config $layers"
before=$digest
image image "$here" "$usual"
equal "the digest of the image that is built again" "$digest" "$before"
for other in $archs; do
  test "$other" != "$here" || continue
  echo "release-test: the image for $other"
  make_in "$work/image" dist/mirror-controller-linux-"$other" dist/kubectl-mirror-linux-"$other"
  image image "$other" "$usual"
  is_right
done
