package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// program is a Go program that was built, and what is linked into it.
type program struct {
	name    string // of its file
	sha256  string // of its bytes, in hex
	modules []module
}

// module is a module at a version.
type module struct {
	path, version string
	sum           string // as go.sum has it, empty for the standard library
}

// readProgram reads what the go command wrote into the program when it built it.
func readProgram(path string) (program, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return program{}, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return program{}, fmt.Errorf("%s: %w", path, err)
	}
	digest := sha256.Sum256(content)
	p := program{name: filepath.Base(path), sha256: hex.EncodeToString(digest[:])}
	// Scanners know the standard library under this name, and its version without the prefix.
	p.modules = append(p.modules, module{path: "stdlib", version: strings.TrimPrefix(info.GoVersion, "go")})
	for _, dep := range info.Deps {
		if dep.Replace != nil {
			dep = dep.Replace
		}
		p.modules = append(p.modules, module{path: dep.Path, version: dep.Version, sum: dep.Sum})
	}
	return p, nil
}
