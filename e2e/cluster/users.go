package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// tokenLife is how long tokens of ServiceAccounts are good for: longer than any run.
const tokenLife = 7 * 24 * time.Hour

// User is a name and groups, as RBAC knows them. A user in the group system:masters may do everything.
type User = envtest.User

// ServiceAccountUser returns the user name of a ServiceAccount, as the audit log and RBAC have it.
func ServiceAccountUser(namespace, name string) string {
	return "system:serviceaccount:" + namespace + ":" + name
}

// addAdmin makes the user who may do everything.
func (c *Cluster) addAdmin() (err error) {
	admin := User{Name: "admin", Groups: []string{"system:masters"}}
	if c.admin, err = c.Config(admin); err != nil {
		return err
	}
	if c.client, err = kubernetes.NewForConfig(c.admin); err != nil {
		return err
	}
	c.adminKubeconfig, err = c.writeKubeconfig(admin.Name, c.admin)
	return err
}

// Client returns a client that may do everything, without a limit on requests a second.
func (c *Cluster) Client() kubernetes.Interface { return c.client }

// Admin returns a client configuration that may do everything, without a limit on requests a second.
// It is the caller's own to change.
func (c *Cluster) Admin() *rest.Config { return rest.CopyConfig(c.admin) }

// AdminKubeconfig returns the path of a kubeconfig that may do everything.
func (c *Cluster) AdminKubeconfig() string { return c.adminKubeconfig }

// Config returns a client configuration for the user, who is known by a client certificate: any name and
// any groups are good, and have the permissions that RBAC gives them.
func (c *Cluster) Config(user User) (*rest.Config, error) {
	c.users.Lock()
	defer c.users.Unlock()
	added, err := c.plane.AddUser(user, &rest.Config{
		QPS: -1, // no limit on requests a second: without one of its own a client takes 5
		ContentConfig: rest.ContentConfig{
			ContentType:        runtime.ContentTypeProtobuf,
			AcceptContentTypes: runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON,
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make a certificate for user %s: %w", user.Name, err)
	}
	return added.Config(), nil
}

// Kubeconfig is Config as a file: it returns the path.
func (c *Cluster) Kubeconfig(user User) (string, error) {
	cfg, err := c.Config(user)
	if err != nil {
		return "", err
	}
	return c.writeKubeconfig(user.Name, cfg)
}

// ServiceAccountKubeconfig returns the path of a kubeconfig with a new token of a ServiceAccount, which must exist.
func (c *Cluster) ServiceAccountKubeconfig(ctx context.Context, namespace, name string) (string, error) {
	life := int64(tokenLife / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &life}}
	answer, err := c.client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
	if err != nil {
		return "", fmt.Errorf("make a token of ServiceAccount %s/%s: %w", namespace, name, err)
	}
	cfg := &rest.Config{Host: c.admin.Host, BearerToken: answer.Status.Token}
	cfg.CAData = c.admin.CAData
	return c.writeKubeconfig(name, cfg)
}

// writeKubeconfig writes a new file for a user, and returns its path.
func (c *Cluster) writeKubeconfig(user string, cfg *rest.Config) (string, error) {
	file, err := os.CreateTemp(c.folder.File("kubeconfigs"), "*.yaml")
	if err != nil {
		return "", err
	}
	return file.Name(), errors.Join(file.Close(), WriteKubeconfig(file.Name(), user, cfg))
}

// WriteKubeconfig writes a file for a user that only this user of the machine can read.
func WriteKubeconfig(file, user string, cfg *rest.Config) error {
	const name = "mirror-cluster"
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {Server: cfg.Host, CertificateAuthorityData: cfg.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	}, file)
}
