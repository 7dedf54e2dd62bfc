package release

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// image is what is in an image.
type image struct {
	digest string // of its manifest
	config config
	files  map[string]file // of all layers, by path, without folders
}

// config is the configuration of an image, as the OCI image specification has it.
type config struct {
	OS, Architecture, Created string
	Config                    imageConfig
	RootFS                    struct {
		DiffIDs []string `json:"diff_ids"`
	}
}

// imageConfig is what a container begins with.
type imageConfig struct {
	User, WorkingDir, StopSignal string
	Env, Entrypoint, Cmd, Shell  []string
	Labels                       map[string]string
	ExposedPorts, Volumes        map[string]struct{}
}

type file struct {
	mode     fs.FileMode
	uid, gid int
	content  []byte
}

// descriptor names another part of an image.
type descriptor struct{ MediaType, Digest string }

// readImage reads the only image of a folder in the OCI image layout.
func readImage(t *testing.T, layout string) image {
	t.Helper()
	var index struct{ Manifests []descriptor }
	readJSON(t, filepath.Join(layout, "index.json"), &index)
	if len(index.Manifests) != 1 {
		t.Fatalf("%d images, want 1", len(index.Manifests))
	}
	blob := func(d descriptor) string {
		return filepath.Join(layout, "blobs", strings.ReplaceAll(d.Digest, ":", "/"))
	}
	var manifest struct {
		Config descriptor
		Layers []descriptor
	}
	readJSON(t, blob(index.Manifests[0]), &manifest)
	i := image{digest: index.Manifests[0].Digest, files: map[string]file{}}
	readJSON(t, blob(manifest.Config), &i.config)
	delete(i.config.Config.Labels, "io.buildah.version") // which buildah adds by itself
	for _, layer := range manifest.Layers {
		if !strings.HasSuffix(layer.MediaType, "tar+gzip") {
			t.Fatalf("a layer is of the type %s", layer.MediaType)
		}
		readLayer(t, blob(layer), i.files)
	}
	return i
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, into); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
}

// readLayer adds what is in a layer to files.
func readLayer(t *testing.T, path string, files map[string]file) {
	t.Helper()
	blob, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	plain, err := gzip.NewReader(blob)
	if err != nil {
		t.Fatal(err)
	}
	for archive := tar.NewReader(plain); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag == tar.TypeDir {
			continue
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[strings.TrimPrefix(header.Name, "/")] = file{
			mode: header.FileInfo().Mode(), uid: header.Uid, gid: header.Gid, content: content,
		}
	}
}
