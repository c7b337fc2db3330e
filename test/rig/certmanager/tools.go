//go:build tools

// Package tools names cert-manager, so that go.mod has its version. Nothing of it is built: the rig has its kinds, and plays its part
// itself.
package tools

import _ "github.com/cert-manager/cert-manager/pkg/apis/certmanager/v1"
