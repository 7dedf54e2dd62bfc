// Command controller-manager stands in for kube-controller-manager where a cluster has no node. It has the controllers
// that the end-to-end tests and `make run` notice, and compiles in seconds: kube-controller-manager needs hundreds of
// packages more. Its flags are some of kube-controller-manager's.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	"k8s.io/apiserver/pkg/cel/openapi/resolver"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/informerfactory"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/clusterroleaggregation"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/resourcequota"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/validatingadmissionpolicystatus"
)

var (
	kubeconfig       = flag.String("kubeconfig", "", "a user who may do everything")
	rootCA           = flag.String("root-ca-file", "", "the certificate authority for kube-root-ca.crt")
	namespaceWorkers = flag.Int("concurrent-namespace-syncs", 10, "namespaces that are emptied at a time")
	quotaWorkers     = flag.Int("concurrent-resource-quota-syncs", 5, "quotas that are counted at a time")
	quotaPeriod      = flag.Duration("resource-quota-sync-period", 5*time.Minute, "between two counts of all quotas")
)

// otherWorkers is how many of each other kind run at a time, as in
// kube-controller-manager.
const otherWorkers = 5

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := start(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// manager is what controllers share.
type manager struct {
	client    kubernetes.Interface
	metadata  metadata.Interface
	informers informers.SharedInformerFactory
	all       informerfactory.InformerFactory // has informers of metadata, too
	started   chan struct{}                   // closed when the informers are started
	// run has the functions that run the controllers, until their context ends.
	run []func(context.Context)
}

func newManager() (*manager, error) {
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return nil, err
	}
	cfg.QPS = -1 // no limit: thousands of namespaces go at a time
	cfg.ContentType = runtime.ContentTypeProtobuf
	cfg.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	m := &manager{started: make(chan struct{})}
	if m.client, err = kubernetes.NewForConfig(cfg); err != nil {
		return nil, err
	}
	if m.metadata, err = metadata.NewForConfig(cfg); err != nil {
		return nil, err
	}
	m.informers = informers.NewSharedInformerFactory(m.client, 0)
	m.all = informerfactory.NewInformerFactory(m.informers, metadatainformer.NewSharedInformerFactory(m.metadata, 0))
	return m, nil
}

// start runs all controllers, and returns when ctx ends. It waits for none of
// them: what they have begun, they take up again after the next start.
func start(ctx context.Context) error {
	m, err := newManager()
	if err != nil {
		return err
	}
	for name, add := range map[string]func(context.Context) error{
		"namespaces":       m.addNamespaces,
		"ServiceAccounts":  m.addServiceAccounts,
		"ClusterRoles":     m.addClusterRoles,
		"root certificate": m.addRootCA,
		"policies":         m.addPolicies,
		"quotas":           m.addQuotas,
	} {
		if err := add(ctx); err != nil {
			return fmt.Errorf("make the controller of %s: %w", name, err)
		}
	}
	for _, run := range m.run {
		go run(ctx)
	}
	m.all.Start(ctx.Done())
	close(m.started)
	<-ctx.Done()
	return nil
}

// addNamespaces adds the controller that empties namespaces that are deleted.
func (m *manager) addNamespaces(ctx context.Context) error {
	resources := m.client.Discovery().ServerPreferredNamespacedResources
	c := namespace.NewNamespaceController(ctx, m.client, m.metadata, resources,
		m.informers.Core().V1().Namespaces(), 0, corev1.FinalizerKubernetes)
	m.run = append(m.run, func(ctx context.Context) { c.Run(ctx, *namespaceWorkers) })
	return nil
}

// addServiceAccounts adds the controller that creates the default account of
// each namespace.
func (m *manager) addServiceAccounts(ctx context.Context) error {
	core := m.informers.Core().V1()
	c, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(),
		core.Namespaces(), m.client, serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return err
	}
	m.run = append(m.run, func(ctx context.Context) { c.Run(ctx, 1) })
	return nil
}

// addClusterRoles adds the controller that fills aggregated ClusterRoles.
func (m *manager) addClusterRoles(context.Context) error {
	c := clusterroleaggregation.NewClusterRoleAggregation(m.informers.Rbac().V1().ClusterRoles(), m.client.RbacV1())
	m.run = append(m.run, func(ctx context.Context) { c.Run(ctx, otherWorkers) })
	return nil
}

// addRootCA adds the controller that publishes kube-root-ca.crt.
func (m *manager) addRootCA(context.Context) error {
	content, err := os.ReadFile(*rootCA)
	if err != nil {
		return err
	}
	core := m.informers.Core().V1()
	c, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), m.client, content)
	if err != nil {
		return err
	}
	m.run = append(m.run, func(ctx context.Context) { c.Run(ctx, 1) })
	return nil
}

// addPolicies adds the controller that checks the types in
// ValidatingAdmissionPolicies, and sets their status.
func (m *manager) addPolicies(context.Context) error {
	client := m.client.Discovery()
	c, err := validatingadmissionpolicystatus.NewController(
		m.informers.Admissionregistration().V1().ValidatingAdmissionPolicies(),
		m.client.AdmissionregistrationV1().ValidatingAdmissionPolicies(),
		&validating.TypeChecker{
			SchemaResolver: &resolver.ClientDiscoveryResolver{Discovery: client},
			RestMapper:     restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client)),
		})
	if err != nil {
		return err
	}
	m.run = append(m.run, func(ctx context.Context) { c.Run(ctx, otherWorkers) })
	return nil
}

// addQuotas adds the controller that counts objects for quotas such as
// count/configmaps. What Pods and Services use would take 82 packages more.
func (m *manager) addQuotas(ctx context.Context) error {
	ignored := map[schema.GroupResource]struct{}{
		{Resource: "events"}:                         {},
		{Group: "events.k8s.io", Resource: "events"}: {},
	}
	c, err := resourcequota.NewController(ctx, &resourcequota.ControllerOptions{
		QuotaClient:               m.client.CoreV1(),
		ResourceQuotaInformer:     m.informers.Core().V1().ResourceQuotas(),
		ResyncPeriod:              controller.StaticResyncPeriodFunc(*quotaPeriod),
		InformerFactory:           m.all,
		ReplenishmentResyncPeriod: controller.NoResyncPeriodFunc,
		DiscoveryFunc:             m.client.Discovery().ServerPreferredNamespacedResources,
		IgnoredResourcesFunc:      func() map[schema.GroupResource]struct{} { return ignored },
		InformersStarted:          m.started,
		Registry:                  generic.NewRegistry(nil),
	})
	if err != nil {
		return err
	}
	m.run = append(m.run, func(ctx context.Context) { c.Run(ctx, *quotaWorkers) })
	return nil
}
