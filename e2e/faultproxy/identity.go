package faultproxy

import (
	"crypto/tls"
	"fmt"
	"os"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

// newCertificate returns a certificate for 127.0.0.1, and in PEM whom to trust for it.
func newCertificate() (certificate tls.Certificate, authority []byte, err error) {
	authority, key, err := certutil.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	certificate, err = tls.X509KeyPair(authority, key)
	return certificate, authority, err
}

// writeKubeconfig writes the kubeconfig in the options to a new file, with the server and its certificate replaced, and returns
// the path.
func writeKubeconfig(o Options, server string, authority []byte) (string, error) {
	config, err := clientcmd.LoadFromFile(o.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	for name := range config.Clusters {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	}
	file, err := os.CreateTemp(o.Dir, "faultproxy-*.yaml")
	if err != nil {
		return "", err
	}
	if err := file.Close(); err != nil {
		return "", err
	}
	return file.Name(), clientcmd.WriteToFile(*config, file.Name())
}
