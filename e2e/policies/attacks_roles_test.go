package policies

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/mirror-controller/mirror-controller/e2e/suite"
	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// Attacks on what the policies and the controller rest on, and what those on namespaces are made of.

// roleAttacks are tried by each of the accounts.
func (w *attacked) roleAttacks() []attack {
	const patchOut = `{"metadata":{"labels":null,"annotations":null}}`
	var out []attack
	for name, account := range map[string]string{
		"tenant": inTarget, "editor": inHome, "deployer": deployer, "creator": creator, "controller": controller,
	} {
		out = append(out,
			attack{row{name + " mints a token of the controller", account, "mirror-system", nil, w.mint(controller, create(w.Copied)), "cannot create"}, stillConfined},
			attack{row{name + " deletes the binding of a policy", account, "mirror-system", nil, deleteBinding, "cannot delete"}, stillConfined},
			attack{row{name + " empties the settings of the policies", account, "mirror-system", nil, patchSettings(patchOut), "cannot patch"}, stillConfined},
			attack{row{name + " takes a Lease", account, metav1.NamespaceDefault, nil, takeLease, "cannot create"}, stillConfined},
			attack{row{name + " reads Secrets", account, "mirror-system", nil, readSecrets, "cannot list"}, stillConfined},
		)
	}
	return out
}

// stillConfined: the policies confine the controller as before.
func stillConfined(w *attacked, _ place) error {
	return InForce(suite.ConfinedPolicy, w.Probe(controller, metav1.NamespaceDefault))
}

// mint asks for a token of a ServiceAccount, and sends a request with it.
func (w *attacked) mint(user string, send request) request {
	return func(ctx context.Context, p place) error {
		namespace, name := accountOf(user)
		token, err := p.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
		cfg := rest.AnonymousClientConfig(w.Cluster.Admin())
		cfg.BearerToken = token.Status.Token
		client, err := kubernetes.NewForConfig(cfg)
		if err != nil {
			return err
		}
		return send(ctx, place{client.CoreV1().ConfigMaps(p.namespace), client, p.namespace, p.name})
	}
}

func deleteBinding(ctx context.Context, p place) error {
	return p.client.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Delete(ctx, suite.ConfinedPolicy, metav1.DeleteOptions{})
}

func patchSettings(body string) request {
	return func(ctx context.Context, p place) error {
		_, err := p.client.RbacV1().ClusterRoleBindings().Patch(ctx, "mirror-controller", types.MergePatchType, []byte(body), metav1.PatchOptions{})
		return err
	}
}

func takeLease(ctx context.Context, p place) error {
	_, err := p.client.CoordinationV1().Leases(p.namespace).Create(ctx,
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "mirror-controller"}}, metav1.CreateOptions{})
	return err
}

func readSecrets(ctx context.Context, p place) error {
	_, err := p.client.CoreV1().Secrets(p.namespace).List(ctx, metav1.ListOptions{})
	return err
}

// Namespaces that are there before the creator does something to them, and the source whose copies they get.
const (
	leaves, joins, ends = "team-leaves", "team-joins", "team-ends"
	forAll              = "for-all"
)

// createPlace creates the namespace that the row is about, with a label if there is one.
func createPlace(label, value string) request {
	return func(ctx context.Context, p place) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
		if label != "" {
			ns.Labels = map[string]string{label: value}
		}
		_, err := p.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{})
		return err
	}
}

// labelPlace labels the namespace that the row is about, or takes the label away.
func labelPlace(label, value string) request {
	set := "null"
	if value != "" {
		set = fmt.Sprintf("%q", value)
	}
	return func(ctx context.Context, p place) error {
		body := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, label, set)
		_, err := p.client.CoreV1().Namespaces().Patch(ctx, p.namespace, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	}
}

func deletePlace(ctx context.Context, p place) error {
	return p.client.CoreV1().Namespaces().Delete(ctx, p.namespace, metav1.DeleteOptions{})
}

// filled: the namespace has the copies.
func filled(w *attacked, at place) error { return w.inSyncNow(platform, at.namespace, forAll) }

// empty: the namespace is there and has no copy.
func empty(w *attacked, at place) error {
	if w.Seen.Namespace(at.namespace) == nil {
		return errors.New("it is not there")
	}
	if w.Seen.ConfigMap(at.namespace, forAll) != nil {
		return errors.New("it has a copy")
	}
	return nil
}

// gone: the namespace has ended.
func gone(w *attacked, at place) error {
	if w.Seen.Namespace(at.namespace) != nil {
		return errors.New("it is still there")
	}
	return nil
}

// reservedName is one that another controller writes into every namespace.
const reservedName = "istio-ca-root-cert"

// notCopied: the source is there, and has no copies.
func notCopied(name string) effect {
	return func(w *attacked, at place) error {
		if w.Shown(at.namespace, name).Labels[plan.DefaultLabel] != plan.SourceValue {
			return errors.New("there is no source")
		}
		return onlyIn()(w, place{namespace: at.namespace, name: name})
	}
}
