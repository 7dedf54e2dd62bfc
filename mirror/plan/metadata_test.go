package plan

import "testing"

// neverCopied are keys that no flag copies: metadata.go has the rules.
var neverCopied = []string{
	// the mirror label, and our own keys
	"mirror", "mirror-controller.github.io/source", "mirror-controller.github.io/namespace-prefix",
	"mirror-controller.github.io/yet-to-come", "app.kubernetes.io/managed-by",
	// GitOps tools, injectors and operators
	"kubectl.kubernetes.io/last-applied-configuration", "app.kubernetes.io/instance", "argocd.argoproj.io/instance",
	"kustomize.toolkit.fluxcd.io/name", "reconcile.fluxcd.io/requestedAt", "reconcile.fluxcd.io/watched",
	"toolkit.fluxcd.io/watch", "fluxcd.io/sync-checksum", "meta.helm.sh/release-name", "helm.sh/chart",
	"applyset.kubernetes.io/part-of", "config.k8s.io/owning-inventory", "kapp.k14s.io/app",
	"operators.coreos.com/prometheus.monitoring", "olm.owner", "olm.operatorframework.io/owner-name",
	"objectset.rio.cattle.io/hash", "fleet.cattle.io/bundle-id", "configmanagement.gke.io/managed",
	"configsync.gke.io/resource-id", "config.openshift.io/inject-trusted-cabundle",
	"service.beta.openshift.io/inject-cabundle",
	// other replicators
	"replicator.v1.mittwald.de/replicate-from", "v1.kubernetes-replicator.olli.com/replicate-from",
	"reflector.v1.k8s.emberstack.com/reflection-allowed", "replicator.nadundesilva.github.io/object-type",
	"kubed.appscode.com/sync", "clustersecret.io", "clustersecret.io/created-by", "generate.kyverno.io/clone-source",
	"trust.cert-manager.io/bundle", "hnc.x-k8s.io/inherited-from", "team.tree.hnc.x-k8s.io/depth",
}

// mayBeCopied are similar keys to which no such rule applies.
var mayBeCopied = []string{
	"reconcile.fluxcd.io/watch",
	"app", "mirror2", "mirrored", "mirror-controller.github.io", "example.com/mirror",
	"xmirror-controller.github.io/source",
	"app.kubernetes.io/name", "app.kubernetes.io/managed-by-team", "app.kubernetes.io/instance-id",
	"example.com/managed-by",
	"kubernetes.io/description", "my.kubectl.kubernetes.io/x", "kubectl.kubernetes.io.example.com/x",
	"argoproj.io/x", "argocd.argoproj.io", "notfluxcd.io/x", "fluxcd.io.example.com/x", "fluxcd.io",
	"example.com/x.fluxcd.io",
	"sh/x", "my.helm.sh/x", "helm.shop/x", "config.k8s.io/other", "config.k8s.io/owning-inventory-2", "k14s.io/x",
	"coreos.com/x", "olm", "olmec", "olm-x", "example.com/olm.owner", "cattle.io/x", "gke.io/x", "x-k8s.io/y",
	"config.openshift.io/other", "service.beta.openshift.io/other", "mittwald.de/x", "cert-manager.io/x", "kyverno.io/x",
}

// TestC26KeysNeverCopied has at least one key for each rule. Case C59.
func TestC26KeysNeverCopied(t *testing.T) {
	for _, key := range neverCopied {
		t.Run(key, func(t *testing.T) {
			stem := key[:len(key)-1] + "*"
			for _, patterns := range [][]string{{key}, {"*"}, {stem}, {"app", "*", key}} {
				got := selectCopied(texts{key: "1", "app": "web"}, patterns, "mirror")
				if _, copied := got[key]; copied {
					t.Errorf("got it copied with the flags %q, want it left out", patterns)
				}
			}
		})
	}
	for _, key := range mayBeCopied {
		t.Run(key, func(t *testing.T) {
			for _, patterns := range [][]string{{key}, {"*"}, {key[:len(key)-1] + "*"}} {
				if got := selectCopied(texts{key: "1"}, patterns, "mirror"); got[key] != "1" {
					t.Errorf("got it left out with the flags %q, want it copied", patterns)
				}
			}
			if got := selectCopied(texts{"x" + key: "1", key + "x": "1"}, []string{key}, "mirror"); len(got) > 0 {
				t.Errorf("got %v copied, and no flag lists it", got)
			}
		})
	}
}
