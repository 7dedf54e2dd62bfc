// Package shipped installs and runs the controller as its users do: the manifests of deploy/ applied with
// strict validation, the binary with the arguments of its Deployment and the token of its ServiceAccount.
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

	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// Manifests are the objects that a kustomization renders, in its order.
type Manifests []*unstructured.Unstructured

// Render returns what `kubectl kustomize dir` prints.
func Render(dir string) (Manifests, error) {
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), dir)
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", dir, err)
	}
	documents, err := resources.AsYaml()
	if err != nil {
		return nil, fmt.Errorf("render %s: %w", dir, err)
	}
	return Parse(bytes.NewReader(documents))
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

// Apply creates the objects, with strict field validation: a field that the API does not know is an error.
// Objects that are there already are left as they are.
func (m Manifests) Apply(ctx context.Context, cfg *rest.Config) error {
	cfg = rest.CopyConfig(cfg)
	cfg.WarningHandler = rest.NoWarnings{}
	c, err := client.New(cfg, client.Options{Log: klog.FromContext(ctx)})
	if err != nil {
		return err
	}
	strict := client.WithFieldValidation(c, metav1.FieldValidationStrict)
	for _, object := range m {
		answered := *object // Create replaces what is in it
		if err := strict.Create(ctx, &answered); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// Deployment returns the one Deployment among the objects.
func (m Manifests) Deployment() (*appsv1.Deployment, error) {
	found, err := OfKind[appsv1.Deployment](m, "Deployment")
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d Deployments in the manifests, want 1", len(found))
	}
	return &found[0], nil
}

// Roles returns the ClusterRoles among the objects, and the Roles as if they were some.
func (m Manifests) Roles() ([]rbacv1.ClusterRole, error) {
	return OfKind[rbacv1.ClusterRole](m, "ClusterRole", "Role")
}

// Granted returns the bindings of these kinds, for all accounts of a namespace.
func (m Manifests) Granted(namespace string, kinds ...string) (bindings Manifests) {
	for _, o := range m {
		if !slices.Contains(kinds, o.GetKind()) {
			continue
		}
		o = o.DeepCopy()
		o.SetName(o.GetName() + "-of-" + namespace)
		o.Object["subjects"] = []any{map[string]any{
			"apiGroup": rbacv1.GroupName, "kind": rbacv1.GroupKind, "name": "system:serviceaccounts:" + namespace,
		}}
		bindings = append(bindings, o)
	}
	return bindings
}

// OfKind returns the objects of some kinds, with a type.
func OfKind[T any](m Manifests, kinds ...string) ([]T, error) {
	var out []T
	var errs []error
	for _, object := range m {
		if !slices.Contains(kinds, object.GetKind()) {
			continue
		}
		var typed T
		errs = append(errs, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &typed))
		out = append(out, typed)
	}
	return out, errors.Join(errs...)
}

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
