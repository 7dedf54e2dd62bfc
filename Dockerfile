# The controller in an image with nothing else in it.
FROM golang:1.26 AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY mirror mirror
ARG VERSION=devel
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.stamp=${VERSION}" -o /mirror-controller ./cmd/mirror-controller

# No certificate authorities are needed: in a cluster the API server's comes with the token of the ServiceAccount.
FROM scratch
COPY --from=build /mirror-controller /mirror-controller
# Numeric, so that the kubelet can tell that it is not root.
USER 65532:65532
ENTRYPOINT ["/mirror-controller"]
