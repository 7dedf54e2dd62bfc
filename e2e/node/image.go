package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// images builds the image of the controller under that name, by the last stage of its Dockerfile, and that of the pause
// container. It returns their archives. repository is the folder of the Makefile.
func images(ctx context.Context, repository, image string, folder *cluster.Folder) ([]string, error) {
	dir := folder.File("images")
	archives := []string{dir + "/controller.tar", dir + "/pause.tar"}
	for _, args := range [][]string{
		{"make", "-C", repository, "image-prebuilt", "BUILDER=buildah", "IMAGE=" + image},
		{"env", "CGO_ENABLED=0", "go", "build", "-buildvcs=false", "-o", dir + "/pause", "./pause"},
		{"buildah", "build", "--quiet", "--tag", pauseImage, dir},
		{"buildah", "push", "--quiet", image, "docker-archive:" + archives[0] + ":" + image},
		{"buildah", "push", "--quiet", pauseImage, "docker-archive:" + archives[1] + ":" + pauseImage},
	} {
		cmd := exec.CommandContext(ctx, args[0], args[1:]...)
		// A store of its own. Chroot and plain folders work where this runs in a container itself.
		cmd.Env = append(os.Environ(), folder.Mark(),
			"CONTAINERS_STORAGE_CONF="+folder.File("images", "storage.conf"), "STORAGE_DRIVER=vfs", "BUILDAH_ISOLATION=chroot")
		if out, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%v: %w: %s", args, err, out)
		}
	}
	return archives, nil
}

const pauseDockerfile = "FROM scratch\nCOPY pause /\nENTRYPOINT [\"/pause\"]\n"

// storageConfig has two folders, for images and for what is running.
const storageConfig = "[storage]\ndriver = \"vfs\"\ngraphroot = %q\nrunroot = %q\n"
