// Package policies shows what the shipped manifests allow: the admission policies, the roles, and the security of the
// Pod.
package policies

import (
	"fmt"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/component-helpers/auth/rbac/validation"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
	"github.com/mirror-controller/mirror-controller/e2e/suite"
)

// users sends requests to the API server of a world that is alone, as many users.
type users struct{ *suite.World }

// as returns a client for the user.
func (w *users) as(user string) kubernetes.Interface {
	w.Helper()
	cfg := w.Cluster.Admin()
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		w.Fatal(err)
	}
	return client
}

var (
	dryCreate = metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	dryDelete = metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
)

// probed is the ConfigMap that probe asks for. The user byName may publish it.
const probed = "holder-of-the-name-creates-a-source"

// probe asks for a ConfigMap as the user, and has none made.
func (w *users) probe(user, namespace string, o ...suite.Option) error {
	cm := suite.ConfigMap(namespace, probed, o...)
	_, err := w.as(user).CoreV1().ConfigMaps(namespace).Create(w.Context(), cm, dryCreate)
	return err
}

// inForce returns nil if err is a refusal by the policy.
func inForce(policy string, err error) error {
	if suite.RefusedBy(err, policy) {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s is not in force: the request was accepted", policy)
	}
	return fmt.Errorf("%s is not in force: %w", policy, err)
}

// ExpectUsed fails the test if a permission of the rules was not needed for any of the requests.
func ExpectUsed(t *testing.T, rules []rbacv1.PolicyRule, requests []cluster.Event) {
	t.Helper()
	var used []rbacv1.PolicyRule
	for _, e := range requests {
		rule := permission(e.Verb, e.Object.APIGroup, e.Object.Resource)
		switch {
		case e.As.Username != "":
			rule = permission("impersonate", "", "serviceaccounts")
		case e.Object.Subresource != "":
			rule.Resources[0] += "/" + e.Object.Subresource
		case e.Object.Resource == "leases" && e.Verb != "create": // which RBAC cannot restrict to a name
			rule.ResourceNames = []string{e.Object.Name}
		}
		used = append(used, rule)
	}
	if _, idle := validation.Covers(used, rules); len(idle) > 0 {
		t.Errorf("granted, and never used: %v", idle)
	}
}

func permission(verb, group, resource string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: []string{verb}, APIGroups: []string{group}, Resources: []string{resource}}
}
