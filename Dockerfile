# The controller and kubectl-mirror, with which `helm test` checks the installation, in an image with nothing else in it.
# `make image` builds it, or BuildKit, podman or buildah alone.

# Where tags may move, or Go comes from a registry of your own: --build-arg GO_IMAGE=NAME@DIGEST. make has to be in it.
ARG GO_IMAGE=golang:1.26

# All but the programs. No certificate authorities are needed: in a cluster the API server's comes with the token of the
# ServiceAccount.
FROM scratch AS base
ARG VERSION=devel
ARG REVISION=unknown
LABEL org.opencontainers.image.title="mirror-controller" \
      org.opencontainers.image.description="Copies ConfigMaps into namespaces by prefix, and keeps the copies identical" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
# Numeric, so that the kubelet can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/mirror-controller"]

# The same image around programs that `make release` has built (--target prebuilt): nothing is pulled for it.
FROM base AS prebuilt
ARG TARGETOS
ARG TARGETARCH
COPY --chmod=0755 dist/mirror-controller-${TARGETOS}-${TARGETARCH} /mirror-controller
COPY --chmod=0755 dist/kubectl-mirror-${TARGETOS}-${TARGETARCH} /kubectl-mirror

# Go compiles for other platforms by itself: this stage runs on the builder's.
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY Makefile ./
COPY cmd cmd
COPY mirror mirror
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=devel
ARG SOURCE_DATE_EPOCH=0
# The Makefile knows how programs are built.
RUN for program in mirror-controller kubectl-mirror; do \
      make dist/$program-${TARGETOS}-${TARGETARCH} VERSION="${VERSION}" SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH}" \
      && mv dist/$program-${TARGETOS}-${TARGETARCH} /$program || exit 1; \
    done

FROM base
COPY --chmod=0755 --from=build /mirror-controller /mirror-controller
COPY --chmod=0755 --from=build /kubectl-mirror /kubectl-mirror
