package main

import (
	"context"
	"fmt"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/shipped"
)

// ownAccounts returns the installation once for each of so many replicas, each with an account of its own that has the
// permissions of the shipped one: so the audit log tells who of them wrote.
func ownAccounts(ctx context.Context, c *cluster.Cluster, installed *shipped.Installation, replicas int) ([]*shipped.Installation, error) {
	var objects shipped.Manifests
	var names []string
	for i := range replicas {
		names = append(names, fmt.Sprintf("storm-replica-%d", i))
	}
	for _, o := range installed.Manifests {
		switch o.GetKind() {
		case "ServiceAccount":
			for _, name := range names {
				account := o.DeepCopy()
				account.SetName(name)
				objects = append(objects, account)
			}
		case "ClusterRoleBinding", "RoleBinding":
			binding := o.DeepCopy()
			binding.SetName(o.GetName() + "-of-the-storm")
			binding.Object["subjects"] = subjects(installed.Namespace, names)
			objects = append(objects, binding)
		}
	}
	if err := objects.Apply(ctx, c.Admin()); err != nil {
		return nil, err
	}
	var out []*shipped.Installation
	for _, name := range names {
		own, err := installed.As(ctx, installed.Namespace, name)
		if err != nil {
			return nil, fmt.Errorf("account %s: %w", name, err)
		}
		out = append(out, own)
	}
	return out, nil
}

func subjects(namespace string, accounts []string) []any {
	var out []any
	for _, name := range accounts {
		out = append(out, map[string]any{"kind": "ServiceAccount", "name": name, "namespace": namespace})
	}
	return out
}
