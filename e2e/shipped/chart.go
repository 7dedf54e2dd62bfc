package shipped

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Helm runs the program helm, by itself: with nothing that the user has set for his.
type Helm struct {
	// Home is a folder for what it keeps.
	Home string
	// Kubeconfig says which cluster it talks to; empty if none.
	Kubeconfig string
}

// helm is the path of the program, from the folder of a test.
const helm = "../../bin/helm"

// Run runs helm and returns its output. An error holds helm's message.
func (h Helm) Run(ctx context.Context, args ...string) ([]byte, error) {
	if _, err := os.Stat(helm); err != nil {
		return nil, fmt.Errorf("helm is not built (make bin/helm builds it): %w", err)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(ctx, helm, args...)
	cmd.Env = []string{"HOME=" + h.Home, "KUBECONFIG=" + h.Kubeconfig}
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(problems.Bytes()))
	}
	return out.Bytes(), nil
}

// Template returns what a release of the chart consists of, as `helm template` prints it, without what is made only
// after its end.
func (h Helm) Template(ctx context.Context, release, chart, namespace string, args ...string) (Manifests, error) {
	out, err := h.Run(ctx, append([]string{"template", release, chart, "--namespace=" + namespace}, args...)...)
	if err != nil {
		return nil, err
	}
	m, err := Parse(bytes.NewReader(out))
	return slices.DeleteFunc(m, func(o *unstructured.Unstructured) bool {
		return o.GetAnnotations()["helm.sh/hook"] == "post-delete"
	}), err
}

// Parse reads objects from documents of YAML.
func Parse(r io.Reader) (Manifests, error) {
	var out Manifests
	decoder := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for {
		object := map[string]any{}
		switch err := decoder.Decode(&object); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case len(object) > 0: // a document may be empty
			out = append(out, &unstructured.Unstructured{Object: object})
		}
	}
}
