package conformance

import (
	"bytes"
	"context"
	"io"
	"net"
	"strconv"
	"sync"
	"syscall"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/kubemend/kubemend/test/rig"
)

// forwarder is a way to an API server that can be cut and mended. TLS goes through it untouched.
//
// While it is cut nobody listens on its port, so that whoever dials is refused. A connection that was accepted and closed
// would be tried again by client-go, ten times for each request, and be an outage that takes long to be noticed.
type forwarder struct {
	address string
	target  string

	mu       sync.Mutex
	listener net.Listener // nil while it is cut
	open     map[net.Conn]bool
}

func newForwarder(to *rig.ControlPlane) *forwarder {
	GinkgoHelper()
	f := &forwarder{address: net.JoinHostPort("127.0.0.1", strconv.Itoa(holdPort())), target: hostOf(to), open: map[net.Conn]bool{}}
	f.mend()
	DeferCleanup(f.cut)
	return f
}

// holdPort binds a port of its own for the spec, on which others of this process may listen. See port in test/rig.
func holdPort() int {
	GinkgoHelper()
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(syscall.Close(socket)).To(Succeed()) })
	Expect(syscall.Bind(socket, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})).To(Succeed())
	Expect(syscall.SetsockoptInt(socket, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)).To(Succeed())
	name, err := syscall.Getsockname(socket)
	Expect(err).NotTo(HaveOccurred())
	return name.(*syscall.SockaddrInet4).Port
}

// kubeconfig is that of the control plane, by way of f.
func (f *forwarder) kubeconfig(of *rig.ControlPlane) []byte {
	return bytes.ReplaceAll(of.Kubeconfig(), []byte(f.target), []byte(f.address))
}

func (f *forwarder) serve(listener net.Listener) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return // cut
		}
		go f.forward(from)
	}
}

func (f *forwarder) forward(from net.Conn) {
	defer f.close(from)
	if !f.keep(from) {
		return
	}
	to, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", f.target)
	if err != nil {
		return
	}
	defer f.close(to)
	if !f.keep(to) {
		return
	}
	go func() {
		defer f.close(from)
		_, _ = io.Copy(from, to) // either end may go at any time
	}()
	_, _ = io.Copy(to, from)
}

// keep takes in a connection, unless f was cut meanwhile.
func (f *forwarder) keep(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil {
		return false
	}
	f.open[c] = true
	return true
}

func (f *forwarder) close(c net.Conn) {
	f.mu.Lock()
	delete(f.open, c)
	f.mu.Unlock()
	_ = c.Close() // for the second time, maybe
}

// cut closes all connections and refuses new ones.
func (f *forwarder) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.listener == nil {
		return
	}
	_ = f.listener.Close() // that it was open is all that could go wrong
	f.listener = nil
	for c := range f.open {
		_ = c.Close()
	}
}

func (f *forwarder) mend() {
	GinkgoHelper()
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", f.address)
	Expect(err).NotTo(HaveOccurred())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.listener = listener
	go f.serve(listener)
}
