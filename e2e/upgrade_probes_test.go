package e2e

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/mirror-controller/mirror-controller/mirror/plan"
)

// What is written all the time while versions change: by a tenant, by a publisher, and by the controller, which follows the
// publisher.

const (
	probesNamespace = "people"
	probedTarget    = "team-0"
	probedSource    = "probe"
	probedPlain     = "plain"
)

// probes are two users who write again and again.
type probes struct {
	stop   func()
	rounds atomic.Int64 // in which both writes were accepted, and the controller has followed
}

func (p *probes) count() int64 { return p.rounds.Load() }

// await waits until so many of the publisher's writes have reached the copy.
func (p *probes) await(w *world, rounds int64) {
	w.Helper()
	w.eventually("the copies follow", func() error {
		if n := p.count(); n < rounds {
			return fmt.Errorf("%d times, want %d", n, rounds)
		}
		return nil
	})
}

// startProbes makes the users, and has them write.
func (u *upgraded) startProbes() {
	u.Helper()
	u.createNamespace(probesNamespace, nil)
	tenant, publisher := u.person("tenant"), u.person("publisher")
	_, err := u.admin.RbacV1().RoleBindings(u.home).Create(u.ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "publisher"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "mirror-controller-publisher"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: probesNamespace, Name: "publisher"}},
	}, metav1.CreateOptions{})
	if err != nil {
		u.Fatal(err)
	}
	u.create(probedTarget, probedPlain)
	source := u.createSource(u.home, probedSource, withAnnotation(plan.PrefixAnnotation, probedTarget))
	u.waitInSync(source, probedTarget)
	u.until("the publisher may publish", func() error { return update(u.ctx, publisher, source) })

	ctx, cancel := context.WithCancel(u.ctx)
	p := &probes{}
	var writing sync.WaitGroup
	p.stop = sync.OnceFunc(func() {
		cancel()
		writing.Wait()
	})
	u.Cleanup(p.stop)
	u.probes = p
	writing.Go(func() {
		followed := ""
		for i := 0; ctx.Err() == nil; i++ {
			content := withData(map[string]string{"key": strconv.Itoa(i)})
			plain := configMap(probedTarget, probedPlain, content)
			source := configMap(u.home, probedSource, withLabel(u.label, plan.SourceValue), withAnnotation(plan.PrefixAnnotation, probedTarget), content)
			err := errors.Join(update(ctx, tenant, plain), update(ctx, publisher, source))
			// The controller may have no time, or be refused: then the users write on, and it follows later.
			_ = u.seen.Eventually(ctx, time.Second, func() error { return u.inSync(source, probedTarget) })
			if now := u.shown(probedTarget, probedSource).Data["key"]; err == nil && now != followed {
				followed = now
				p.rounds.Add(1)
			}
		}
	})
}

func update(ctx context.Context, client kubernetes.Interface, cm *corev1.ConfigMap) error {
	_, err := client.CoreV1().ConfigMaps(cm.Namespace).Update(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: cm.Name, Labels: cm.Labels, Annotations: cm.Annotations}, Data: cm.Data,
	}, metav1.UpdateOptions{})
	return err
}

// person returns a client for a new ServiceAccount that may edit everywhere: the audit log has its requests.
func (u *upgraded) person(name string) kubernetes.Interface {
	u.Helper()
	_, err := u.admin.CoreV1().ServiceAccounts(probesNamespace).Create(u.ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err == nil {
		_, err = u.admin.RbacV1().ClusterRoleBindings().Create(u.ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: probesNamespace, Name: name}},
		}, metav1.CreateOptions{})
	}
	if err != nil {
		u.Fatal(err)
	}
	cfg, err := u.cluster.ServiceAccountConfig(u.ctx, probesNamespace, name)
	if err != nil {
		u.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		u.Fatal(err)
	}
	return client
}
