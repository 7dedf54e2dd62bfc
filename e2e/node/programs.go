package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"

	"github.com/mirror-controller/mirror-controller/e2e/cluster"
)

// The programs of the node, and their arguments. They start in this order.

const (
	containerd = "containerd"
	// name is that of the node.
	name = "node1"
	// pauseImage is the image of the container that holds a Pod's namespaces.
	pauseImage = "localhost/pause:node"
)

// user is one that the API server knows by a token, which is his name.
type user struct{ name, group string }

var (
	admin   = user{"admin", "system:masters"}
	kubelet = user{"system:node:" + name, "system:nodes"}
	users   = []user{admin, kubelet}
)

func (n *Node) programs() [][]string {
	kubeconfig := func(u user) string { return "--kubeconfig=" + n.kubeconfig(u) }
	return [][]string{
		{containerd, "--config=" + n.file("containerd.toml")},
		{cluster.Etcd, "--data-dir=/var/lib/etcd", "--unsafe-no-fsync", "--log-level=warn"},
		{cluster.APIServer,
			"--etcd-servers=http://127.0.0.1:2379",
			"--bind-address=0.0.0.0", "--secure-port=443", "--advertise-address=" + nodeAddress,
			"--service-cluster-ip-range=10.96.0.0/16", "--endpoint-reconciler-type=none",
			"--tls-cert-file=" + n.file("server.crt"), "--tls-private-key-file=" + n.file("server.key"),
			"--token-auth-file=" + n.file("tokens.csv"),
			"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--service-account-issuer=https://kubernetes.default.svc",
			"--service-account-key-file=" + n.file("server.key"), "--service-account-signing-key-file=" + n.file("server.key"),
			"--kubelet-preferred-address-types=InternalIP",
			"--audit-policy-file=" + n.file("audit-policy.json"), "--audit-log-path=" + n.file("audit.log"),
			"--audit-log-mode=blocking", "--audit-log-maxsize=1000000",
		},
		{cluster.ControllerManager, kubeconfig(admin),
			"--root-ca-file=" + n.file("server.crt"), "--leader-elect=false", "--authentication-skip-lookup",
			"--kube-api-qps=1000", "--kube-api-burst=2000", "--concurrent-namespace-syncs=20", // else hundreds of namespaces take long
		},
		{cluster.Scheduler, kubeconfig(admin), "--leader-elect=false", "--authentication-skip-lookup"},
		{cluster.Kubelet, kubeconfig(kubelet), "--config=" + n.file("kubelet.yaml"), "--hostname-override=" + name,
			"--node-ip=" + nodeAddress},
	}
}

// file returns the path of a file of the node, for it and for the tests.
func (n *Node) file(name string) string { return filepath.Join(n.dir, name) }

func (n *Node) kubeconfig(u user) string {
	return n.file(strings.ReplaceAll(u.name, ":", "-") + ".kubeconfig")
}

// configure writes the files that the programs read.
func (n *Node) configure() error {
	cert, key, err := certutil.GenerateSelfSignedCertKey(serverAddress, nil, nil)
	if err != nil {
		return err
	}
	tokens := ""
	for _, u := range users {
		tokens += fmt.Sprintf("%s,%s,%s,%s\n", u.name, u.name, u.name, u.group)
		if err := n.writeKubeconfig(u, cert); err != nil {
			return err
		}
	}
	files := map[string]string{
		"server.crt": string(cert), "server.key": string(key), "tokens.csv": tokens,
		"containerd.toml":  fmt.Sprintf(containerdConfig, pauseImage, n.dir),
		"cni/bridge.json":  cniConfig,
		"kubelet.yaml":     fmt.Sprintf(kubeletConfig, filepath.Base(n.dir)),
		"var/lib/.exists":  "",
		"var/log/.exists":  "",
		"home/.kube/.none": "",
	}
	for name, value := range kernelSettings {
		files[filepath.Join("sys", name)] = value + "\n"
	}
	for file, content := range files {
		if err := os.MkdirAll(filepath.Dir(n.file(file)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(n.file(file), []byte(content), 0o600); err != nil {
			return err
		}
	}
	return cluster.WriteAuditPolicy(n.file("audit-policy.json"), "Metadata")
}

func (n *Node) writeKubeconfig(u user, ca []byte) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: "https://" + serverAddress, CertificateAuthorityData: ca}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{u.name: {Token: u.name}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: u.name}},
		CurrentContext: name,
	}, n.kubeconfig(u))
}

// The native snapshotter works on every file system, and an OOM score cannot be lowered in a container.
const containerdConfig = `version = 2
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = %q
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "native"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "%s/cni"
`

const cniConfig = `{
  "cniVersion": "0.4.0", "name": "pods", "type": "bridge", "bridge": "cni0", "isGateway": true,
  "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.88.0.0/16"}]], "routes": [{"dst": "0.0.0.0/0"}]}
}`

// The kubelet's port is as open as this network is closed: the API server reads logs and proxies through it. However full the
// disk of the machine is, the node evicts no Pod and deletes no image.
const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /%s
failCgroupV1: false
failSwapOn: false
evictionHard: {memory.available: "0%%", nodefs.available: "0%%", nodefs.inodesFree: "0%%", imagefs.available: "0%%", imagefs.inodesFree: "0%%"}
imageGCHighThresholdPercent: 100
resolvConf: ""
volumePluginDir: /var/lib/kubelet/plugins
`
