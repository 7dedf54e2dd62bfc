package plan

import (
	"testing"
)

// contractNeverCopied are keys that are never copied, each with the rule in section 1 of the contract.
var contractNeverCopied = texts{
	"mirror":                             "the mirror label",
	"mirror-controller.github.io/source": "our own keys",
	"mirror-controller.github.io/namespace-prefix": "our own keys",
	"mirror-controller.github.io/yet-to-come":      "our own keys",

	"kubectl.kubernetes.io/last-applied-configuration": "kubectl.kubernetes.io/*",
	"app.kubernetes.io/managed-by":                     "app.kubernetes.io/managed-by",
	"app.kubernetes.io/instance":                       "app.kubernetes.io/instance",
	"argocd.argoproj.io/instance":                      "argocd.argoproj.io/*",
	"kustomize.toolkit.fluxcd.io/name":                 "*.fluxcd.io/*",
	"reconcile.fluxcd.io/requestedAt":                  "*.fluxcd.io/*",
	"reconcile.fluxcd.io/watched":                      "*.fluxcd.io/*",
	"toolkit.fluxcd.io/watch":                          "*.fluxcd.io/*",
	"fluxcd.io/sync-checksum":                          "fluxcd.io/*",
	"meta.helm.sh/release-name":                        "meta.helm.sh/*",
	"helm.sh/chart":                                    "helm.sh/*",
	"applyset.kubernetes.io/part-of":                   "applyset.kubernetes.io/*",
	"config.k8s.io/owning-inventory":                   "config.k8s.io/owning-inventory",
	"kapp.k14s.io/app":                                 "kapp.k14s.io/*",
	"operators.coreos.com/prometheus.monitoring":       "operators.coreos.com/*",
	"olm.owner":                                   "olm.*",
	"olm.operatorframework.io/owner-name":         "olm.*",
	"objectset.rio.cattle.io/hash":                "objectset.rio.cattle.io/*",
	"fleet.cattle.io/bundle-id":                   "fleet.cattle.io/*",
	"configmanagement.gke.io/managed":             "configmanagement.gke.io/*",
	"configsync.gke.io/resource-id":               "configsync.gke.io/*",
	"hnc.x-k8s.io/inherited-from":                 "hnc.x-k8s.io/*",
	"config.openshift.io/inject-trusted-cabundle": "config.openshift.io/inject-trusted-cabundle",
	"service.beta.openshift.io/inject-cabundle":   "service.beta.openshift.io/inject-cabundle",

	"replicator.v1.mittwald.de/replicate-from":           "other replicators: kubernetes-replicator",
	"reflector.v1.k8s.emberstack.com/reflection-allowed": "other replicators: kubernetes-reflector",
	"kubed.appscode.com/sync":                            "other replicators: config-syncer",
	"replicator.nadundesilva.github.io/object-type":      "other replicators: k8s-replicator",
	"clustersecret.io/created-by":                        "other replicators: ClusterSecret",
	"generate.kyverno.io/clone-source":                   "other replicators: Kyverno",
	"trust.cert-manager.io/bundle":                       "other replicators: trust-manager",
	"clustersecret.io":                                   "other replicators: ClusterSecret",
	"v1.kubernetes-replicator.olli.com/replicate-from":   "other replicators: a fork of kubernetes-replicator",
	"team.tree.hnc.x-k8s.io/depth":                       "other replicators: hierarchical namespaces",
}

// contractMayBeCopied are similar keys to which no rule of the contract applies.
var contractMayBeCopied = []string{
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

// TestC26KeysNeverCopied has each key that the contract names. Case C59.
func TestC26KeysNeverCopied(t *testing.T) {
	for key, rule := range contractNeverCopied {
		stem := key[:len(key)-1] + "*"
		for _, patterns := range [][]string{{key}, {"*"}, {stem}, {"app", "*", key}} {
			got := selectCopied(texts{key: "1", "app": "web"}, patterns, "mirror")
			if _, copied := got[key]; copied {
				t.Errorf("%s (%s): got it copied with the flags %q, want it left out", key, rule, patterns)
			}
		}
	}
	for _, key := range contractMayBeCopied {
		for _, patterns := range [][]string{{key}, {"*"}, {key[:len(key)-1] + "*"}} {
			if got := selectCopied(texts{key: "1"}, patterns, "mirror"); got[key] != "1" {
				t.Errorf("%s: got it left out with the flags %q, want it copied", key, patterns)
			}
		}
		if got := selectCopied(texts{"x" + key: "1", key + "x": "1"}, []string{key}, "mirror"); len(got) > 0 {
			t.Errorf("%s: got %v copied, and no flag lists it", key, got)
		}
	}
}
