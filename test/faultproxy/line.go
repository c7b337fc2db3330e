// Package faultproxy stands between a manager and an API server, and breaks their connections.
package faultproxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
)

// Line passes connections on to an API server, as they are: TLS and all. It can be cut.
type Line struct {
	address, server string

	mu       sync.Mutex
	listener net.Listener
	open     map[net.Conn]bool
}

// NewLine opens a line to the API server of an address such as https://127.0.0.1:6443.
func NewLine(host string) (*Line, error) {
	to, err := url.Parse(host)
	if err != nil {
		return nil, fmt.Errorf("read the address of an API server: %w", err)
	}
	l := &Line{address: "127.0.0.1:0", server: to.Host}
	if err := l.Mend(); err != nil {
		return nil, err
	}
	return l, nil
}

// Through is a kubeconfig for the API server, over the line.
func (l *Line) Through(kubeconfig []byte) []byte {
	return bytes.ReplaceAll(kubeconfig, []byte(l.server), []byte(l.address))
}

// Cut breaks all connections, and refuses new ones.
func (l *Line) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.listener.Close()
	for c := range l.open {
		_ = c.Close()
	}
	l.open = nil
}

// Mend takes connections again, at the same address.
func (l *Line) Mend() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	listener, err := net.Listen("tcp", l.address)
	if err != nil {
		return fmt.Errorf("listen on %s: %w", l.address, err)
	}
	l.listener, l.address, l.open = listener, listener.Addr().String(), map[net.Conn]bool{}
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			go l.pass(c)
		}
	}()
	return nil
}

func (l *Line) pass(from net.Conn) {
	to, err := net.Dial("tcp", l.server)
	if err != nil {
		_ = from.Close()
		return
	}
	l.mu.Lock()
	if l.open == nil { // it was cut meanwhile
		_, _ = from.Close(), to.Close()
	} else {
		l.open[from], l.open[to] = true, true
	}
	l.mu.Unlock()
	for _, pair := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		}()
	}
}
