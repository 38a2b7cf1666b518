"""A camera: cameras.py PORT WIDTH HEIGHT RATE [USER PASSWORD] serves /cam by RTSP: H.264 with a key frame a second, or JPEGs below 5 frames/s."""

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

Gst.init(None)
port, width, height, rate = sys.argv[1:5]
size = f"video/x-raw,format=I420,width={width},height={height},framerate={rate}"
factory = GstRtspServer.RTSPMediaFactory()
key = rate.split("/")[0]
h264 = f"openh264enc gop-size={key} rate-control=off complexity=low ! h264parse ! rtph264pay config-interval=1"
# The encoder wants some frames a second; slow cameras often send JPEGs anyway.
encoded = "jpegenc ! rtpjpegpay" if int(key) < 5 else h264
factory.set_launch(f"( videotestsrc is-live=true pattern=ball ! {size} ! {encoded} name=pay0 )")
factory.set_shared(True)
server = GstRtspServer.RTSPServer()
server.set_address("127.0.0.1")
server.set_service(port)
if len(sys.argv) > 5:
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "user")
    auth = GstRtspServer.RTSPAuth()
    auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
    auth.add_digest(sys.argv[5], sys.argv[6], token)
    server.set_auth(auth)
    permissions = GstRtspServer.RTSPPermissions()
    permissions.add_permission_for_role("user", "media.factory.access", True)
    permissions.add_permission_for_role("user", "media.factory.construct", True)
    factory.set_permissions(permissions)
server.get_mount_points().add_factory("/cam", factory)
server.attach(None)
print("ready", flush=True)
GLib.MainLoop().run()
