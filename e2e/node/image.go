package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// images builds the image of the controller under that name, by the last stage of its Dockerfile, and that of the pause
// container, into a folder. It returns their archives. repository is the folder of the Makefile.
func images(ctx context.Context, repository, image, dir string) ([]string, error) {
	b := builder{dir: dir}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	conf := fmt.Sprintf("[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n", dir+"/graph", dir+"/run")
	if err := os.WriteFile(b.file("storage.conf"), []byte(conf), 0o600); err != nil {
		return nil, err
	}
	if err := os.WriteFile(b.file("Dockerfile"), []byte("FROM scratch\nCOPY pause /\nENTRYPOINT [\"/pause\"]\n"), 0o600); err != nil {
		return nil, err
	}
	for _, args := range [][]string{
		{"make", "-C", repository, "image-prebuilt", "BUILDER=buildah", "IMAGE=" + image},
		{"env", "CGO_ENABLED=0", "go", "build", "-buildvcs=false", "-o", b.file("pause"), "./pause"},
		{"buildah", "build", "--quiet", "--tag", pauseImage, dir},
	} {
		if err := b.run(ctx, args...); err != nil {
			return nil, err
		}
	}
	var archives []string
	for i, name := range []string{image, pauseImage} {
		archive := b.file(fmt.Sprintf("image%d.tar", i))
		if err := b.run(ctx, "buildah", "push", "--quiet", name, "docker-archive:"+archive+":"+name); err != nil {
			return nil, err
		}
		archives = append(archives, archive)
	}
	return archives, nil
}

// builder runs buildah with a store of its own.
type builder struct{ dir string }

func (b builder) file(name string) string { return filepath.Join(b.dir, name) }

func (b builder) run(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	// Chroot and plain folders work where this runs in a container itself.
	cmd.Env = append(os.Environ(), "CONTAINERS_STORAGE_CONF="+b.file("storage.conf"), "STORAGE_DRIVER=vfs", "BUILDAH_ISOLATION=chroot")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return nil
}
