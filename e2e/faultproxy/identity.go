package faultproxy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// certificateLife is longer than any run.
const certificateLife = 7 * 24 * time.Hour

// newCertificate returns a certificate for 127.0.0.1 that signs itself, and the same in PEM, for those who are to
// trust it.
func newCertificate() (certificate tls.Certificate, authority []byte, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "faultproxy"},
		NotBefore:             now.Add(-time.Hour), // of clocks that were set
		NotAfter:              now.Add(certificateLife),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true,
		IsCA:                  true,
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	authority = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, authority, nil
}

// writeKubeconfig writes the current context of the kubeconfig in the options to a new file, with the server and its
// certificate replaced, and returns the path.
func writeKubeconfig(o Options, server string, authority []byte) (string, error) {
	config, err := clientcmd.LoadFromFile(o.Kubeconfig)
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	if err := clientcmdapi.MinifyConfig(config); err != nil {
		return "", fmt.Errorf("read the kubeconfig for the proxy: %w", err)
	}
	for name, user := range config.AuthInfos {
		if user.Token == "" && user.TokenFile == "" {
			return "", fmt.Errorf("kubeconfig for the proxy: user %s has no token, and nothing else can be passed on", name)
		}
	}
	for name := range config.Clusters {
		config.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: authority}
	}
	content, err := clientcmd.Write(*config)
	if err != nil {
		return "", fmt.Errorf("write a kubeconfig for the proxy: %w", err)
	}
	file, err := os.CreateTemp(o.Dir, "faultproxy-*.yaml")
	if err != nil {
		return "", err
	}
	if _, err := file.Write(content); err != nil {
		file.Close()
		return "", err
	}
	return file.Name(), file.Close()
}
