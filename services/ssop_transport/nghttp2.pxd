"""What is used of libnghttp2 (1.52 and later)."""

from libc.stdint cimport int32_t, uint8_t, uint32_t


cdef extern from "<sys/types.h>":
    ctypedef long ssize_t


cdef extern from "<nghttp2/nghttp2.h>":
    ctypedef struct nghttp2_session:
        pass
    ctypedef struct nghttp2_session_callbacks:
        pass
    ctypedef struct nghttp2_option:
        pass
    ctypedef struct nghttp2_priority_spec:
        pass
    ctypedef struct nghttp2_frame_hd:
        size_t length
        int32_t stream_id
        uint8_t type
        uint8_t flags
    ctypedef struct nghttp2_goaway:
        nghttp2_frame_hd hd
        int32_t last_stream_id
        uint32_t error_code
    ctypedef struct nghttp2_headers:
        nghttp2_frame_hd hd
        int cat
    ctypedef struct nghttp2_rst_stream:
        nghttp2_frame_hd hd
        uint32_t error_code
    ctypedef struct nghttp2_ping:
        nghttp2_frame_hd hd
        uint8_t opaque_data[8]
    ctypedef union nghttp2_frame:
        nghttp2_frame_hd hd
        nghttp2_headers headers
        nghttp2_rst_stream rst_stream
        nghttp2_goaway goaway
        nghttp2_ping ping
    enum:
        NGHTTP2_NV_FLAG_NONE
        NGHTTP2_NV_FLAG_NO_INDEX
    ctypedef struct nghttp2_nv:
        uint8_t *name
        uint8_t *value
        size_t namelen
        size_t valuelen
        uint8_t flags
    ctypedef union nghttp2_data_source:
        int fd
        void *ptr
    ctypedef ssize_t (*nghttp2_data_source_read_callback)(
        nghttp2_session *, int32_t, uint8_t *, size_t, uint32_t *, nghttp2_data_source *, void *) noexcept
    ctypedef struct nghttp2_data_provider:
        nghttp2_data_source source
        nghttp2_data_source_read_callback read_callback
    ctypedef struct nghttp2_settings_entry:
        int32_t settings_id
        uint32_t value

    int NGHTTP2_DATA, NGHTTP2_HEADERS, NGHTTP2_PRIORITY, NGHTTP2_RST_STREAM, NGHTTP2_SETTINGS, NGHTTP2_PING
    int NGHTTP2_GOAWAY
    int NGHTTP2_FLAG_END_STREAM, NGHTTP2_FLAG_ACK, NGHTTP2_FLAG_NONE
    int NGHTTP2_DATA_FLAG_EOF, NGHTTP2_DATA_FLAG_NO_END_STREAM
    int NGHTTP2_ERR_DEFERRED, NGHTTP2_ERR_CALLBACK_FAILURE
    int NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE
    int NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, NGHTTP2_SETTINGS_ENABLE_PUSH
    int NGHTTP2_NO_ERROR, NGHTTP2_CANCEL, NGHTTP2_ENHANCE_YOUR_CALM, NGHTTP2_INTERNAL_ERROR

    int nghttp2_option_new(nghttp2_option **)
    void nghttp2_option_set_no_auto_window_update(nghttp2_option *, int)
    void nghttp2_option_set_no_closed_streams(nghttp2_option *, int)
    void nghttp2_option_set_peer_max_concurrent_streams(nghttp2_option *, uint32_t)

    int nghttp2_session_callbacks_new(nghttp2_session_callbacks **)
    void nghttp2_session_callbacks_set_on_begin_headers_callback(
        nghttp2_session_callbacks *, int (*)(nghttp2_session *, const nghttp2_frame *, void *) noexcept)
    void nghttp2_session_callbacks_set_on_header_callback(
        nghttp2_session_callbacks *,
        int (*)(nghttp2_session *, const nghttp2_frame *, const uint8_t *, size_t, const uint8_t *, size_t, uint8_t,
                void *) noexcept)
    void nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
        nghttp2_session_callbacks *,
        int (*)(nghttp2_session *, uint8_t, int32_t, const uint8_t *, size_t, void *) noexcept)
    void nghttp2_session_callbacks_set_on_frame_recv_callback(
        nghttp2_session_callbacks *, int (*)(nghttp2_session *, const nghttp2_frame *, void *) noexcept)
    void nghttp2_session_callbacks_set_on_frame_send_callback(
        nghttp2_session_callbacks *, int (*)(nghttp2_session *, const nghttp2_frame *, void *) noexcept)
    void nghttp2_session_callbacks_set_on_frame_not_send_callback(
        nghttp2_session_callbacks *, int (*)(nghttp2_session *, const nghttp2_frame *, int, void *) noexcept)
    void nghttp2_session_callbacks_set_on_stream_close_callback(
        nghttp2_session_callbacks *, int (*)(nghttp2_session *, int32_t, uint32_t, void *) noexcept)

    int nghttp2_session_server_new2(
        nghttp2_session **, const nghttp2_session_callbacks *, void *, const nghttp2_option *)
    int nghttp2_session_client_new2(
        nghttp2_session **, const nghttp2_session_callbacks *, void *, const nghttp2_option *)
    void nghttp2_session_del(nghttp2_session *)
    ssize_t nghttp2_session_mem_recv(nghttp2_session *, const uint8_t *, size_t)
    ssize_t nghttp2_session_mem_send(nghttp2_session *, const uint8_t **)
    int nghttp2_session_want_read(nghttp2_session *)
    int nghttp2_session_want_write(nghttp2_session *)
    int nghttp2_session_set_local_window_size(nghttp2_session *, uint8_t, int32_t, int32_t)
    int nghttp2_session_consume_connection(nghttp2_session *, size_t)
    int nghttp2_session_consume_stream(nghttp2_session *, int32_t, size_t)
    int nghttp2_session_resume_data(nghttp2_session *, int32_t)
    size_t nghttp2_session_get_outbound_queue_size(nghttp2_session *)
    void *nghttp2_session_get_stream_user_data(nghttp2_session *, int32_t)
    int nghttp2_session_set_stream_user_data(nghttp2_session *, int32_t, void *)
    int32_t nghttp2_session_get_last_proc_stream_id(nghttp2_session *)
    uint32_t nghttp2_session_get_next_stream_id(nghttp2_session *)
    int nghttp2_session_terminate_session(nghttp2_session *, uint32_t)
    int nghttp2_submit_settings(nghttp2_session *, uint8_t, const nghttp2_settings_entry *, size_t)
    int nghttp2_submit_response(
        nghttp2_session *, int32_t, const nghttp2_nv *, size_t, const nghttp2_data_provider *)
    int nghttp2_submit_trailer(nghttp2_session *, int32_t, const nghttp2_nv *, size_t)
    int32_t nghttp2_submit_request(
        nghttp2_session *, const nghttp2_priority_spec *, const nghttp2_nv *, size_t, const nghttp2_data_provider *,
        void *)
    int nghttp2_submit_rst_stream(nghttp2_session *, uint8_t, int32_t, uint32_t)
    int nghttp2_submit_ping(nghttp2_session *, uint8_t, const uint8_t *)
    int nghttp2_submit_shutdown_notice(nghttp2_session *)
    int nghttp2_submit_goaway(nghttp2_session *, uint8_t, int32_t, uint32_t, const uint8_t *, size_t)
