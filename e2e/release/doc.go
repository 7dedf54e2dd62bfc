// Package release holds the tests of what is released: the programs, their bills of materials and checksums, and the
// image. They work in copies of the repository, and need no cluster. Those of the image need buildah and root, and no
// network but the Go module proxy: the image of Go, on which the Dockerfile builds, is made of the tools of this
// machine.
package release
